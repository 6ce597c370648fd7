// Browsers start no workers for pages that are opened as files. There, what the theme's search asks of a worker runs in
// a hidden frame: messages go in and come out as those of a worker would.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise(resolve => {
        this.frame.addEventListener("load", () => resolve(this.frame.contentWindow), { once: true });
      });
      window.workersInFrames = [...(window.workersInFrames || []), this];
      const number = window.workersInFrames.length - 1;
      this.frame.srcdoc = `<script>
        const worker = parent.workersInFrames[${number}];
        window.postMessage = data => worker.answer(data);
        window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(resolve => {
          const script = document.createElement("script");
          script.src = url;
          script.onload = resolve;
          document.head.append(script);
        })), Promise.resolve());
      <\/script><script src="${new URL(url, location.href)}"><\/script>`;
      document.body.append(this.frame);
    }
    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      this.ready.then(frame => frame.dispatchEvent(new frame.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
