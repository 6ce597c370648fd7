/* The Python extension that calls one compiled model, compiled next to the model's own files into the
 * same shared object. Its one function, `connect`, returns a callable that checks NumPy arrays through
 * the buffer protocol, allocates the outputs, and runs the model without the GIL. It needs neither
 * NumPy's headers nor one build per Python version (limited API of 3.11).
 *
 * It makes no messages: a call that is not plainly right (a wrong dtype, a strided array, a keyword)
 * goes to a Python function, which copies and tries again, or raises the error that explains. */

/* An example: one input f32[B] and one output f32[B]. */
#define MODEL model
#define SIGNATURE model(x: f32[B]) -> f32[B]
#define DECLARATIONS \
    int64_t MODEL_workspace_bytes(int64_t, int); \
    int MODEL_run(const void *, void *, int64_t, const void *, void *, int, fx_error *);
#define N_INPUTS 1
#define N_OUTPUTS 1
#define INPUTS {"f", 4, 1}, /* x: f32[B] */
#define CHECKS int64_t dim_B = view[0].shape[0];
#define ALLOCATIONS \
    if (!allocate(state, 0, 1, (int64_t[]){dim_B}, outputs, &view[held])) goto done; \
    held++;
#define DIMS dim_B,
#define POINTERS view[0].buf, view[1].buf,
#define RESULT PySequence_GetItem(outputs, 0)

/* Python extension that calls SIGNATURE; written by fxlite. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int code; int64_t value; int64_t limit; int64_t where; } fx_error;
DECLARATIONS

/* A workspace between calls. The memory after the 64 bytes of this header is aligned to 64. */
typedef struct Block { struct Block *next; int64_t bytes; } Block;

typedef struct {
    Py_buffer weights;
    Py_buffer n_threads;     /* int: what the caller asks for */
    Py_buffer memory_limit;  /* int64_t: bytes of results and workspace together */
    Py_buffer process;       /* int[2]: most threads now allowed; whether a parallel call has run */
    PyObject *array_type;    /* numpy.ndarray */
    PyObject *empty;         /* numpy.empty */
    PyObject *fail;          /* raises what an fx_error means */
    PyObject *retry;         /* what to do with a call that is not plainly right */
    PyObject *dtypes;        /* of the outputs */
    Block *idle;             /* guarded by the GIL */
} State;

typedef struct { const char *formats; int bytes; int rank; } Input;
static const Input inputs[] = {
    INPUTS
};

static Block *take_block(State *state, int64_t bytes) {
    Block *block = state->idle;
    if (block) state->idle = block->next;
    if (block && block->bytes >= bytes) return block;
    free(block);
    void *memory = NULL;
    if (bytes < 0 || bytes > INT64_MAX - 64 || posix_memalign(&memory, 64, 64 + (size_t)bytes))
        return NULL;
    block = memory;
    block->bytes = bytes;
    return block;
}

static void return_block(State *state, Block *block) {
    block->next = state->idle;
    state->idle = block;
}

/* The array, when the model can read it as it is: exact type, dtype, rank, C order. The format of
   an array of foreign byte order or without alignment has a second character. */
static int view_input(State *state, PyObject *array, const Input *wanted, Py_buffer *view) {
    if ((PyObject *)Py_TYPE(array) != state->array_type) return 0;
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
        PyErr_Clear();
        return 0;
    }
    const char *format = view->format;
    if (view->itemsize == wanted->bytes && view->ndim == wanted->rank && format[0]
        && !format[1] && strchr(wanted->formats, format[0]))
        return 1;
    PyBuffer_Release(view);
    return 0;
}

/* outputs[index] = np.empty(shape, dtype). A negative size is no Python error: the caller, too,
   gives up and leaves the message to Python. */
static int allocate(State *state, int index, int rank, const int64_t *sizes, PyObject *outputs,
                    Py_buffer *view) {
    PyObject *shape = PyTuple_New(rank);
    if (!shape) return 0;
    for (int axis = 0; axis < rank; axis++) {
        PyObject *size = sizes[axis] < 0 ? NULL : PyLong_FromLongLong(sizes[axis]);
        if (!size) {
            Py_DECREF(shape);
            return 0;
        }
        PyTuple_SetItem(shape, axis, size);
    }
    PyObject *dtype = PyTuple_GetItem(state->dtypes, index);
    PyObject *array = PyObject_CallFunctionObjArgs(state->empty, shape, dtype, NULL);
    Py_DECREF(shape);
    if (!array) return 0;
    PyTuple_SetItem(outputs, index, array);
    return PyObject_GetBuffer(array, view, PyBUF_WRITABLE) == 0;
}

/* Run the model on arrays that are right as they are, else return NotImplemented. */
static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    State *state = PyCapsule_GetPointer(self, "fxlite_entry");
    if (n_args != N_INPUTS) Py_RETURN_NOTIMPLEMENTED;
    Py_buffer view[N_INPUTS + N_OUTPUTS];
    PyObject *outputs = NULL, *result = NULL;
    int held = 0;
    for (; held < N_INPUTS; held++)
        if (!view_input(state, args[held], &inputs[held], &view[held])) goto done;

    CHECKS

    outputs = PyTuple_New(N_OUTPUTS);
    if (!outputs) goto done;
    ALLOCATIONS

    int n_threads = *(int *)state->n_threads.buf;
    int *process = state->process.buf;
    if (n_threads > process[0]) n_threads = process[0];
    if (n_threads > 1) process[1] = 1;
    int64_t bytes = MODEL_workspace_bytes(DIMS n_threads);
    int64_t total = bytes, most = *(int64_t *)state->memory_limit.buf;
    for (int i = 0; i < N_OUTPUTS; i++) total += view[N_INPUTS + i].len;
    fx_error error = {2, total, most, -1};
    int status = 1;
    Block *block = bytes == 0 || total > most ? NULL : take_block(state, bytes);
    if (block || (bytes == 0 && total <= most)) {
        void *workspace = block ? (char *)block + 64 : NULL;
        error = (fx_error){0};
        Py_BEGIN_ALLOW_THREADS
        status = MODEL_run(POINTERS DIMS state->weights.buf, workspace, n_threads, &error);
        Py_END_ALLOW_THREADS
        if (block) return_block(state, block);
    }
    if (status == 0)
        result = RESULT;
    else
        result = PyObject_CallFunction(state->fail, "iLLL", error.code, (long long)error.value,
                                       (long long)error.limit, (long long)error.where);
done:
    while (held > 0) PyBuffer_Release(&view[--held]);
    Py_XDECREF(outputs);
    if (!result && !PyErr_Occurred()) Py_RETURN_NOTIMPLEMENTED;
    return result;
}

static PyMethodDef run_method = {
    "MODEL", (PyCFunction)(void (*)(void))run, METH_FASTCALL, NULL
};

/* Run the model, else retry(run, args, kwargs), which copies or explains. */
static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names) {
    if (!names) {
        PyObject *result = run(self, args, n_args);
        if (result != Py_NotImplemented) return result;
        Py_DECREF(result);
    }
    State *state = PyCapsule_GetPointer(self, "fxlite_entry");
    PyObject *result = NULL, *strict = PyCFunction_NewEx(&run_method, self, NULL);
    PyObject *positional = PyTuple_New(n_args), *keywords = PyDict_New();
    if (!strict || !positional || !keywords) goto done;
    for (Py_ssize_t i = 0; i < n_args; i++) PyTuple_SetItem(positional, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; names && i < PyTuple_Size(names); i++)
        if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[n_args + i])) goto done;
    result = PyObject_CallFunctionObjArgs(state->retry, strict, positional, keywords, NULL);
done:
    Py_XDECREF(strict);
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

static PyMethodDef call_method = {
    "MODEL", (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS, NULL
};

static void destroy(PyObject *capsule) {
    State *state = PyCapsule_GetPointer(capsule, "fxlite_entry");
    if (!state) return;
    for (Block *block = state->idle, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    PyBuffer_Release(&state->weights);
    PyBuffer_Release(&state->n_threads);
    PyBuffer_Release(&state->memory_limit);
    PyBuffer_Release(&state->process);
    Py_XDECREF(state->array_type);
    Py_XDECREF(state->empty);
    Py_XDECREF(state->fail);
    Py_XDECREF(state->retry);
    Py_XDECREF(state->dtypes);
    free(state);
}

/* connect(weights, n_threads, memory_limit, process, ndarray, np.empty, fail, retry, dtypes)
   -> (call, run) */
static PyObject *connect(PyObject *module, PyObject *args) {
    State *state = calloc(1, sizeof *state);
    if (!state) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(state, "fxlite_entry", destroy);
    if (!capsule) {
        free(state);
        return NULL;
    }
    PyObject *functions = NULL;
    if (PyArg_ParseTuple(args, "y*w*w*w*OOOOO!", &state->weights, &state->n_threads,
                         &state->memory_limit, &state->process, &state->array_type, &state->empty,
                         &state->fail, &state->retry, &PyTuple_Type, &state->dtypes)) {
        Py_INCREF(state->array_type);
        Py_INCREF(state->empty);
        Py_INCREF(state->fail);
        Py_INCREF(state->retry);
        Py_INCREF(state->dtypes);
        functions = Py_BuildValue("(NN)", PyCFunction_NewEx(&call_method, capsule, NULL),
                                  PyCFunction_NewEx(&run_method, capsule, NULL));
    } else {
        memset(state, 0, sizeof *state); /* ParseTuple has released what it took */
    }
    Py_DECREF(capsule);
    return functions;
}

static PyMethodDef methods[] = {{"connect", connect, METH_VARARGS, NULL}, {NULL}};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fxlite_entry", NULL, 0, methods, slots, NULL, NULL, NULL
};

PyMODINIT_FUNC PyInit_fxlite_entry(void) { return PyModuleDef_Init(&definition); }
