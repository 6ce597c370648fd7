// The slider between two pictures: what is left of the handle is the first one, what is right of it the second.
for (const slider of document.querySelectorAll(".slider")) {
  const handle = slider.querySelector("input");
  const pictures = [...slider.querySelectorAll("img")];
  const show = () => {
    // The handle stands at a place of the frame; each picture is cut there, in its own coordinates.
    const frame = slider.getBoundingClientRect();
    const x = frame.left + (frame.width * handle.value) / 100;
    const [before, after] = pictures.map(picture => picture.getBoundingClientRect());
    pictures[0].style.clipPath = `inset(0 ${Math.max(0, before.right - x)}px 0 0)`;
    pictures[1].style.clipPath = `inset(0 0 0 ${Math.max(0, x - after.left)}px)`;
  };
  const begin = () => {
    // Both pictures at one scale, so that the page begins with them and does not end with them.
    for (const picture of pictures) picture.width = picture.naturalWidth * 0.62;
    show();
  };
  handle.addEventListener("input", show);
  addEventListener("resize", show);
  addEventListener("load", begin);
  show();
}

// What the theme leaves to do for people without a mouse or with a screen reader: a name for the search, and code that
// can be scrolled with keys where it is larger than its frame.
document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
const reach = code => {
  const isCut = code.scrollWidth > code.clientWidth || code.scrollHeight > code.clientHeight;
  if (isCut && !code.hasAttribute("tabindex")) code.tabIndex = 0;
};
// The theme takes the attribute away from code that is cut below only.
const watched = new MutationObserver(changes => changes.forEach(change => reach(change.target)));
for (const code of document.querySelectorAll("pre > code")) {
  watched.observe(code, { attributeFilter: ["tabindex"] });
  reach(code);
}
addEventListener("resize", () => document.querySelectorAll("pre > code").forEach(reach));
