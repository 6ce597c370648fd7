"""The C text of the Python extension that calls one compiled model.

In comes an `Entry`; out comes a C file that is compiled next to the model's own files into the same
shared object. Its one function, `connect`, returns a callable that checks NumPy arrays through the
buffer protocol, allocates the outputs, and runs the model without the GIL. It needs neither NumPy's
headers nor one build per Python version (limited API of 3.11).

It makes no messages: a call that is not plainly right (a wrong dtype, a strided array, a keyword)
goes to a Python function, which copies and tries again, or raises the error that explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fxlite.base.outside_text import comment
from fxlite.codegen.c.tiles.library import needed
from fxlite.codegen.runtime.abi import ArgSpec, Binding, Dim, DimText, Entry, c_variable
from fxlite.types.dtypes import dtype

MODULE_NAME = "fxlite_entry"


def extension_source(entry: Entry) -> str:
    """The extension's C file for one entry point."""
    name, pointers = entry.name, len(entry.inputs) + len(entry.outputs)
    dims = "int64_t, " * len(entry.dims)
    parameters = ", ".join(["int64_t"] * len(entry.dims)) or "void"
    checks, allocations = [*_checks(entry)], [*_allocations(entry)]
    arrays = "const void *, " * len(entry.inputs) + "void *, " * len(entry.outputs)
    return _TEMPLATE.format(
        name=name,
        module=MODULE_NAME,
        signature=comment(str(entry)),
        helpers=needed("".join((*checks, *allocations))),
        workspace_prototype=f"int64_t {name}_workspace_bytes({dims}int);",
        run_prototype=f"int {name}_run({arrays}{dims}const void *, void *, int, fx_error *);",
        n_inputs=len(entry.inputs),
        n_outputs=len(entry.outputs),
        inputs=_join(map(_input_row, entry.inputs)) or "    {NULL, 0, 0}",
        size_prototype=f"int64_t {name}_largest_bytes({parameters});\n" if entry.values else "",
        checks=_join(checks),
        allocations=_join(allocations),
        dims="".join(f"{c_variable(dim, 'dim_')}, " for dim in entry.dims),
        pointers="".join(f"view[{i}].buf, " for i in range(pointers)),
        result="PySequence_GetItem(outputs, 0)" if entry.single_output else "Py_NewRef(outputs)",
    )


def _join(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _input_row(spec: ArgSpec) -> str:
    kind = dtype(spec.dtype)
    rank = len(spec.shape)
    return f'{{"{kind.buffer}", {kind.itemsize}, {rank}}}, /* {comment(str(spec))} */'


def _checks(entry: Entry) -> Iterator[str]:
    """C that declares `dim_NAME` for each dim and goes to `done` unless every axis agrees and
    every condition holds."""
    solved = set()
    for binding in entry.bindings:
        yield from _solve(binding)
        solved.add((binding.argument, binding.axis))
    for argument, spec in enumerate(entry.inputs):
        for axis, dim in enumerate(spec.shape):
            if (argument, axis) not in solved:
                yield from _divisor_checks(dim)
                yield f"if (view[{argument}].shape[{axis}] != {_c(dim)}) goto done;"
    for condition in entry.conditions:
        for side in (condition.left, condition.right):
            yield from _divisor_checks(side)
        yield f"if (!({condition.c('dim_')})) goto done; /* {comment(condition.reason)} */"
    yield from _counted(entry)


def _counted(entry: Entry) -> Iterator[str]:
    """C that goes to `done` where a value cannot be counted or is larger than the memory limit."""
    if entry.values:
        dims = ", ".join(c_variable(dim, "dim_") for dim in entry.dims)
        yield f"int64_t largest = {entry.name}_largest_bytes({dims});"
        yield "if (largest < 0 || largest > *(int64_t *)state->memory_limit.buf) goto done;"


def _solve(binding: Binding) -> Iterator[str]:
    name, scale = c_variable(binding.dim, "dim_"), binding.scale
    size = f"view[{binding.argument}].shape[{binding.axis}]"
    if (scale, binding.offset) == (1, 0):
        yield f"int64_t {name} = {size};"
        return
    rest = f"({size} - ({binding.offset}))"
    yield f"int64_t {name} = {rest} / ({scale});"
    yield f"if ({name} < 0 || {name} * ({scale}) != {rest}) goto done;"


def _allocations(entry: Entry) -> Iterator[str]:
    for index, spec in enumerate(entry.outputs):
        for dim in spec.shape:
            yield from _divisor_checks(dim)
        rank = len(spec.shape)
        values = f"(int64_t[]){{{', '.join(map(_c, spec.shape))}}}" if rank else "NULL"
        yield f"if (!allocate(state, {index}, {rank}, {values}, outputs, &view[held])) goto done;"
        yield "held++;"


def _divisor_checks(dim: Dim) -> Iterator[str]:
    for divisor in dim.divisors if isinstance(dim, DimText) else ():
        yield f"if ({_c(divisor)} <= 0) goto done;"


def _c(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else dim.c("dim_")


_TEMPLATE = """\
/* Python extension that calls {signature}; written by fxlite. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {{ int code; int64_t value; int64_t limit; int64_t where; }} fx_error;
{size_prototype}{workspace_prototype}
{run_prototype}

{helpers}
/* A workspace between calls. The memory after the 64 bytes of this header is aligned to 64. */
typedef struct Block {{ struct Block *next; int64_t bytes; }} Block;

typedef struct {{
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
}} State;

typedef struct {{ const char *formats; int bytes; int rank; }} Input;
static const Input inputs[] = {{
{inputs}
}};

static Block *take_block(State *state, int64_t bytes) {{
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
}}

static void return_block(State *state, Block *block) {{
    block->next = state->idle;
    state->idle = block;
}}

/* The array, when the model can read it as it is: exact type, dtype, rank, C order. The format of
   an array of foreign byte order or without alignment has a second character. */
static int view_input(State *state, PyObject *array, const Input *wanted, Py_buffer *view) {{
    if ((PyObject *)Py_TYPE(array) != state->array_type) return 0;
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {{
        PyErr_Clear();
        return 0;
    }}
    const char *format = view->format;
    if (view->itemsize == wanted->bytes && view->ndim == wanted->rank && format[0]
        && !format[1] && strchr(wanted->formats, format[0]))
        return 1;
    PyBuffer_Release(view);
    return 0;
}}

/* outputs[index] = np.empty(shape, dtype). A negative size is no Python error: the caller, too,
   gives up and leaves the message to Python. */
static int allocate(State *state, int index, int rank, const int64_t *sizes, PyObject *outputs,
                    Py_buffer *view) {{
    PyObject *shape = PyTuple_New(rank);
    if (!shape) return 0;
    for (int axis = 0; axis < rank; axis++) {{
        PyObject *size = sizes[axis] < 0 ? NULL : PyLong_FromLongLong(sizes[axis]);
        if (!size) {{
            Py_DECREF(shape);
            return 0;
        }}
        PyTuple_SetItem(shape, axis, size);
    }}
    PyObject *dtype = PyTuple_GetItem(state->dtypes, index);
    PyObject *array = PyObject_CallFunctionObjArgs(state->empty, shape, dtype, NULL);
    Py_DECREF(shape);
    if (!array) return 0;
    PyTuple_SetItem(outputs, index, array);
    return PyObject_GetBuffer(array, view, PyBUF_WRITABLE) == 0;
}}

/* Run the model on arrays that are right as they are, else return NotImplemented. */
static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {{
    State *state = PyCapsule_GetPointer(self, "{module}");
    if (n_args != {n_inputs}) Py_RETURN_NOTIMPLEMENTED;
    Py_buffer view[{n_inputs} + {n_outputs}];
    PyObject *outputs = NULL, *result = NULL;
    int held = 0;
    for (; held < {n_inputs}; held++)
        if (!view_input(state, args[held], &inputs[held], &view[held])) goto done;

{checks}

    outputs = PyTuple_New({n_outputs});
    if (!outputs) goto done;
{allocations}

    int n_threads = *(int *)state->n_threads.buf;
    int *process = state->process.buf;
    if (n_threads > process[0]) n_threads = process[0];
    if (n_threads > 1) process[1] = 1;
    int64_t bytes = {name}_workspace_bytes({dims}n_threads);
    int64_t total = bytes, most = *(int64_t *)state->memory_limit.buf;
    for (int i = 0; i < {n_outputs}; i++) total += view[{n_inputs} + i].len;
    fx_error error = {{2, total, most, -1}};
    int status = 1;
    Block *block = bytes == 0 || total > most ? NULL : take_block(state, bytes);
    if (block || (bytes == 0 && total <= most)) {{
        void *workspace = block ? (char *)block + 64 : NULL;
        error = (fx_error){{0}};
        Py_BEGIN_ALLOW_THREADS
        status = {name}_run({pointers}{dims}state->weights.buf, workspace, n_threads, &error);
        Py_END_ALLOW_THREADS
        if (block) return_block(state, block);
    }}
    if (status == 0)
        result = {result};
    else
        result = PyObject_CallFunction(state->fail, "iLLL", error.code, (long long)error.value,
                                       (long long)error.limit, (long long)error.where);
done:
    while (held > 0) PyBuffer_Release(&view[--held]);
    Py_XDECREF(outputs);
    if (!result && !PyErr_Occurred()) Py_RETURN_NOTIMPLEMENTED;
    return result;
}}

static PyMethodDef run_method = {{
    "{name}", (PyCFunction)(void (*)(void))run, METH_FASTCALL, NULL
}};

/* Run the model, else retry(run, args, kwargs), which copies or explains. */
static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names) {{
    if (!names) {{
        PyObject *result = run(self, args, n_args);
        if (result != Py_NotImplemented) return result;
        Py_DECREF(result);
    }}
    State *state = PyCapsule_GetPointer(self, "{module}");
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
}}

static PyMethodDef call_method = {{
    "{name}", (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS, NULL
}};

static void destroy(PyObject *capsule) {{
    State *state = PyCapsule_GetPointer(capsule, "{module}");
    if (!state) return;
    for (Block *block = state->idle, *next; block; block = next) {{
        next = block->next;
        free(block);
    }}
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
}}

/* connect(weights, n_threads, memory_limit, process, ndarray, np.empty, fail, retry, dtypes)
   -> (call, run) */
static PyObject *connect(PyObject *module, PyObject *args) {{
    State *state = calloc(1, sizeof *state);
    if (!state) return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(state, "{module}", destroy);
    if (!capsule) {{
        free(state);
        return NULL;
    }}
    PyObject *functions = NULL;
    if (PyArg_ParseTuple(args, "y*w*w*w*OOOOO!", &state->weights, &state->n_threads,
                         &state->memory_limit, &state->process, &state->array_type, &state->empty,
                         &state->fail, &state->retry, &PyTuple_Type, &state->dtypes)) {{
        Py_INCREF(state->array_type);
        Py_INCREF(state->empty);
        Py_INCREF(state->fail);
        Py_INCREF(state->retry);
        Py_INCREF(state->dtypes);
        functions = Py_BuildValue("(NN)", PyCFunction_NewEx(&call_method, capsule, NULL),
                                  PyCFunction_NewEx(&run_method, capsule, NULL));
    }} else {{
        memset(state, 0, sizeof *state); /* ParseTuple has released what it took */
    }}
    Py_DECREF(capsule);
    return functions;
}}

static PyMethodDef methods[] = {{{{"connect", connect, METH_VARARGS, NULL}}, {{NULL}}}};
static PyModuleDef_Slot slots[] = {{{{0, NULL}}}};
static PyModuleDef definition = {{
    PyModuleDef_HEAD_INIT, "{module}", NULL, 0, methods, slots, NULL, NULL, NULL
}};

PyMODINIT_FUNC PyInit_{module}(void) {{ return PyModuleDef_Init(&definition); }}
"""
