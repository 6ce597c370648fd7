/* The Python extension that calls a compiled model. It is compiled once, and linked into each shared
 * object with what entry.c says about that model. Its one function, `connect`, returns a callable that
 * checks NumPy arrays through the buffer protocol, allocates the outputs, and runs the model without
 * the GIL. It needs neither NumPy's headers nor one build per Python version (limited API of 3.11).
 *
 * It writes no messages: a call that is not plainly right (a wrong dtype, a strided array, a keyword)
 * goes to a Python function, which copies the arguments and tries again, or raises an error that
 * explains what is wrong. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fxlite_entry.h"

/* A workspace between calls. The memory after the 64 bytes of this header is aligned to 64. */
typedef struct Block { struct Block *next; int64_t bytes; } Block;

typedef struct {
    Py_buffer weights;
    Py_buffer n_threads;     /* int: what the caller asks for */
    Py_buffer memory_limit;  /* int64_t: bytes of results and workspace together */
    Py_buffer process;       /* int[2]: most threads now allowed; whether a parallel call has run */
    PyObject *array_type;    /* numpy.ndarray */
    PyObject *scalar_type;   /* numpy.generic, whose values are arrays without axes */
    PyObject *empty;         /* numpy.empty */
    PyObject *large;         /* like it, for outputs of many elements */
    PyObject *fail;          /* raises what an fx_error means */
    PyObject *retry;         /* what to do with a call that is not plainly right */
    PyObject *dtypes;        /* of the outputs */
    Block *idle;             /* guarded by the GIL, as are these: */
    PyObject **shapes;       /* of the outputs of the last call, NULL before it */
    int64_t *sizes;          /* of their axes, all together */
} State;

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

/* The array, if the model can read it unchanged: exact type, dtype, rank, C order. The format of
   an array of foreign byte order or without alignment has a second character. */
static int view_input(State *state, PyObject *array, const fx_input *wanted, Py_buffer *view) {
    PyTypeObject *type = Py_TYPE(array);
    const int is_scalar = wanted->rank == 0
        && PyType_IsSubtype(type, (PyTypeObject *)state->scalar_type);
    if ((PyObject *)type != state->array_type && !is_scalar) return 0;
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
        PyErr_Clear();
        return 0;
    }
    const char *format = view->format + (view->format[0] == 'Z'); /* a complex number */
    if (view->itemsize == wanted->bytes && view->ndim == wanted->rank && format[0]
        && !format[1] && strchr(wanted->formats, format[0]))
        return 1;
    PyBuffer_Release(view);
    return 0;
}

/* The shape of an output, whose axes start at `axis` among those of all outputs: that of the last call
   if it has the same sizes. A negative size is not a Python error: the callers, too, give up and leave
   the message to Python. */
static PyObject *shape_of(State *state, int index, int axis, const int64_t *sizes) {
    const int rank = fxlite_entry.ranks[index];
    PyObject *shape = state->shapes[index];
    if (shape && !memcmp(state->sizes + axis, sizes + axis, rank * sizeof *sizes))
        return Py_NewRef(shape);
    shape = PyTuple_New(rank);
    for (int i = 0; shape && i < rank; i++) {
        PyObject *size = sizes[axis + i] < 0 ? NULL : PyLong_FromLongLong(sizes[axis + i]);
        if (size)
            PyTuple_SetItem(shape, i, size);
        else
            Py_CLEAR(shape);
    }
    if (!shape) return NULL;
    PyObject *last = state->shapes[index];
    state->shapes[index] = Py_NewRef(shape);
    memcpy(state->sizes + axis, sizes + axis, rank * sizeof *sizes);
    Py_XDECREF(last);
    return shape;
}

/* Elements from which an output's memory is asked of `large`. */
enum { MANY_ELEMENTS = 1 << 21 };

/* An array for an output, and its memory; NULL if there is not enough memory. */
static PyObject *allocate(State *state, int index, int axis, const int64_t *sizes,
                          Py_buffer *view) {
    PyObject *shape = shape_of(state, index, axis, sizes);
    if (!shape) return NULL;
    PyObject *dtype = PyTuple_GetItem(state->dtypes, index);
    double elements = 1;
    for (int i = 0; i < fxlite_entry.ranks[index]; i++) elements *= (double)sizes[axis + i];
    PyObject *make = elements < MANY_ELEMENTS ? state->empty : state->large;
    PyObject *array = PyObject_CallFunctionObjArgs(make, shape, dtype, NULL);
    Py_DECREF(shape);
    if (array && PyObject_GetBuffer(array, view, PyBUF_WRITABLE)) Py_CLEAR(array);
    return array;
}

/* The only output, or a tuple of all. */
static PyObject *result_of(PyObject **outputs, int n_outputs) {
    if (fxlite_entry.single_output) return Py_NewRef(outputs[0]);
    PyObject *result = PyTuple_New(n_outputs);
    for (int index = 0; result && index < n_outputs; index++)
        PyTuple_SetItem(result, index, Py_NewRef(outputs[index]));
    return result;
}

/* Run the model on arrays that are right as they are; otherwise return NotImplemented. */
static PyObject *run_as_is(State *state, PyObject *const *args, Py_ssize_t n_args) {
    const fx_entry *const entry = &fxlite_entry;
    const int n_inputs = entry->n_inputs, n_outputs = entry->n_outputs;
    const int n_arrays = n_inputs + n_outputs;
    if (n_args != n_inputs) Py_RETURN_NOTIMPLEMENTED;
    Py_buffer view[n_arrays + 1];
    const Py_ssize_t *shapes[n_inputs + 1];
    void *arrays[n_arrays + 1];
    int64_t dims[entry->n_dims + 1], sizes[entry->n_sizes + 1];
    PyObject *outputs[n_outputs + 1], *result = NULL;
    const int64_t most = *(int64_t *)state->memory_limit.buf;
    int held = 0, made = 0;
    for (; held < n_inputs; held++) {
        if (!view_input(state, args[held], &entry->inputs[held], &view[held])) goto done;
        shapes[held] = view[held].shape;
        arrays[held] = view[held].buf;
    }
    if (!entry->measure(shapes, most, dims, sizes)) goto done;

    int64_t total = 0;
    for (int axis = 0; made < n_outputs; made++, held++) {
        outputs[made] = allocate(state, made, axis, sizes, &view[held]);
        if (!outputs[made]) goto done;
        axis += entry->ranks[made];
        total += view[held].len;
        arrays[held] = view[held].buf;
    }

    int n_threads = *(int *)state->n_threads.buf;
    int *process = state->process.buf;
    if (n_threads > process[0]) n_threads = process[0];
    if (n_threads > 1) process[1] = 1;
    int64_t bytes = entry->workspace_bytes(dims, n_threads);
    total += bytes;
    fx_error error = {FX_OUT_OF_MEMORY, total, most, -1};
    int status = 1;
    Block *block = bytes == 0 || total > most ? NULL : take_block(state, bytes);
    if (block || (bytes == 0 && total <= most)) {
        void *workspace = block ? (char *)block + 64 : NULL;
        error = (fx_error){0};
        Py_BEGIN_ALLOW_THREADS
        status = entry->run(arrays, dims, state->weights.buf, workspace, n_threads, &error);
        Py_END_ALLOW_THREADS
        if (block) return_block(state, block);
    }
    if (status == 0)
        result = result_of(outputs, n_outputs);
    else
        result = PyObject_CallFunction(state->fail, "iLLL", error.code, (long long)error.value,
                                       (long long)error.limit, (long long)error.where);
done:
    while (held > 0) PyBuffer_Release(&view[--held]);
    while (made > 0) Py_DECREF(outputs[--made]);
    if (!result && !PyErr_Occurred()) Py_RETURN_NOTIMPLEMENTED;
    return result;
}

static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    return run_as_is(PyCapsule_GetPointer(self, "fxlite_entry"), args, n_args);
}

/* Their names are the model's, which `connect` puts here. */
static PyMethodDef run_method = {
    NULL, (PyCFunction)(void (*)(void))run, METH_FASTCALL, NULL
};

/* Run the model; if it cannot, return retry(run, args, kwargs), which copies or explains. */
static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names) {
    State *state = PyCapsule_GetPointer(self, "fxlite_entry");
    if (!names) {
        PyObject *result = run_as_is(state, args, n_args);
        if (result != Py_NotImplemented) return result;
        Py_DECREF(result);
    }
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
    NULL, (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS, NULL
};

static void destroy(PyObject *capsule) {
    State *state = PyCapsule_GetPointer(capsule, "fxlite_entry");
    if (!state) return;
    for (Block *block = state->idle, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    for (int index = 0; state->shapes && index < fxlite_entry.n_outputs; index++)
        Py_XDECREF(state->shapes[index]);
    free(state->shapes);
    free(state->sizes);
    PyBuffer_Release(&state->weights);
    PyBuffer_Release(&state->n_threads);
    PyBuffer_Release(&state->memory_limit);
    PyBuffer_Release(&state->process);
    Py_XDECREF(state->array_type);
    Py_XDECREF(state->scalar_type);
    Py_XDECREF(state->empty);
    Py_XDECREF(state->large);
    Py_XDECREF(state->fail);
    Py_XDECREF(state->retry);
    Py_XDECREF(state->dtypes);
    free(state);
}

/* connect(weights, n_threads, memory_limit, process, ndarray, np.generic, np.empty, large, fail, retry,
   dtypes) -> (call, run) */
static PyObject *connect(PyObject *module, PyObject *args) {
    State *state = calloc(1, sizeof *state);
    if (!state) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(state, "fxlite_entry", destroy);
    if (!capsule) {
        free(state);
        return NULL;
    }
    run_method.ml_name = call_method.ml_name = fxlite_entry.name;
    PyObject *functions = NULL;
    if (PyArg_ParseTuple(args, "y*w*w*w*OOOOOOO!", &state->weights, &state->n_threads,
                         &state->memory_limit, &state->process, &state->array_type,
                         &state->scalar_type, &state->empty, &state->large, &state->fail,
                         &state->retry, &PyTuple_Type, &state->dtypes)) {
        Py_INCREF(state->array_type);
        Py_INCREF(state->scalar_type);
        Py_INCREF(state->empty);
        Py_INCREF(state->large);
        Py_INCREF(state->fail);
        Py_INCREF(state->retry);
        Py_INCREF(state->dtypes);
        state->shapes = calloc(fxlite_entry.n_outputs + 1, sizeof *state->shapes);
        state->sizes = calloc(fxlite_entry.n_sizes + 1, sizeof *state->sizes);
        functions = !state->shapes || !state->sizes ? PyErr_NoMemory()
            : Py_BuildValue("(NN)", PyCFunction_NewEx(&call_method, capsule, NULL),
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
