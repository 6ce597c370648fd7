"""Names of the user's program in emitted C and CUDA C: marked in the making, spelled at the end.

A program may call its values, weights and sizes anything, and text that is made for them has names
of its own. So that no template has to know which names the user took, nor the user those of
templates, a name of the program goes into text *marked*: its first letter is one of another
alphabet (``𝐛atch``), which makes it a word that nobody writes by hand and that takes as many
columns.

In: names (:func:`value_name`, :func:`weight_name`, :func:`dim_name`, :func:`own_name`,
:func:`derived`), and text that holds them. Out: once the text of a scope is complete,
:class:`Scope` spells each marked name as it was, or if that is taken there by a word that is not
marked, a keyword, a macro or another name, in the nearest way that is free: ``batch_``,
``batch_2``.

Keywords, and macros of the C library, are taken everywhere in C, C++ and CUDA C. The macros are
those that GCC 12 and Clang 14 know after they have read all headers of the C standard and omp.h
(``gcc -E -dM``), without names that begin with an underscore; a test asks the compiler at hand
again for the headers that emitted text includes. Who includes an emitted header may have included
any of them before, and a macro has no scope.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache

# -- taken names -----------------------------------------------------------------------------------
KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t
    char32_t char8_t class co_await co_return co_yield compl concept const const_cast
    consteval constexpr constinit continue contract_assert decltype default delete do double
    dynamic_cast else enum explicit export extern false final float for fortran friend goto if
    import inline int long main module mutable namespace new noexcept not not_eq nullptr
    operator or or_eq override private protected public reflexpr register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct
    switch template this thread_local throw true try typedef typeid typename typeof
    typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()
)
"""Keywords of C23 and C++23, and main."""

HEADERS = frozenset(
    """
    assert complex ctype errno fenv float inttypes iso646 limits locale math omp setjmp signal
    stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string
    tgmath threads time uchar wchar wctype
    """.split()
)
"""Headers of the C standard, and OpenMP's."""

MACROS = frozenset(
    """
    AIO_PRIO_DELTA_MAX ATOMIC_BOOL_LOCK_FREE ATOMIC_CHAR16_T_LOCK_FREE
    ATOMIC_CHAR32_T_LOCK_FREE ATOMIC_CHAR_LOCK_FREE ATOMIC_FLAG_INIT ATOMIC_INT_LOCK_FREE
    ATOMIC_LLONG_LOCK_FREE ATOMIC_LONG_LOCK_FREE ATOMIC_POINTER_LOCK_FREE
    ATOMIC_SHORT_LOCK_FREE ATOMIC_VAR_INIT ATOMIC_WCHAR_T_LOCK_FREE BC_BASE_MAX BC_DIM_MAX
    BC_SCALE_MAX BC_STRING_MAX BIG_ENDIAN BUFSIZ BUS_ADRALN BUS_ADRERR BUS_MCEERR_AO
    BUS_MCEERR_AR BUS_OBJERR BYTE_ORDER CHARCLASS_NAME_MAX CHAR_BIT CHAR_MAX CHAR_MIN
    CLD_CONTINUED CLD_DUMPED CLD_EXITED CLD_KILLED CLD_STOPPED CLD_TRAPPED CLOCKS_PER_SEC
    CLOCK_BOOTTIME CLOCK_BOOTTIME_ALARM CLOCK_MONOTONIC CLOCK_MONOTONIC_COARSE
    CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME CLOCK_REALTIME_ALARM
    CLOCK_REALTIME_COARSE CLOCK_TAI CLOCK_THREAD_CPUTIME_ID CMPLX CMPLXF CMPLXL
    COLL_WEIGHTS_MAX DBL_DECIMAL_DIG DBL_DIG DBL_EPSILON DBL_HAS_SUBNORM DBL_MANT_DIG DBL_MAX
    DBL_MAX_10_EXP DBL_MAX_EXP DBL_MIN DBL_MIN_10_EXP DBL_MIN_EXP DBL_TRUE_MIN DECIMAL_DIG
    DELAYTIMER_MAX E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EADV EAFNOSUPPORT EAGAIN EALREADY
    EBADE EBADF EBADFD EBADMSG EBADR EBADRQC EBADSLT EBFONT EBUSY ECANCELED ECHILD ECHRNG
    ECOMM ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDEADLOCK EDESTADDRREQ EDOM EDOTDOT
    EDQUOT EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM EILSEQ EINPROGRESS EINTR
    EINVAL EIO EISCONN EISDIR EISNAM EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT EL2NSYNC
    EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN ELNRNG ELOOP EMEDIUMTYPE EMFILE
    EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH ENFILE
    ENOANO ENOBUFS ENOCSI ENODATA ENODEV ENOENT ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM
    ENOMSG ENONET ENOPKG ENOPROTOOPT ENOSPC ENOSR ENOSTR ENOSYS ENOTBLK ENOTCONN ENOTDIR
    ENOTEMPTY ENOTNAM ENOTRECOVERABLE ENOTSOCK ENOTSUP ENOTTY ENOTUNIQ ENXIO EOF EOPNOTSUPP
    EOVERFLOW EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPROTO EPROTONOSUPPORT EPROTOTYPE ERANGE
    EREMCHG EREMOTE EREMOTEIO ERESTART ERFKILL EROFS ESHUTDOWN ESOCKTNOSUPPORT ESPIPE ESRCH
    ESRMNT ESTALE ESTRPIPE ETIME ETIMEDOUT ETOOMANYREFS ETXTBSY EUCLEAN EUNATCH EUSERS
    EWOULDBLOCK EXDEV EXFULL EXIT_FAILURE EXIT_SUCCESS EXPR_NEST_MAX FD_CLR FD_ISSET FD_SET
    FD_SETSIZE FD_ZERO FE_ALL_EXCEPT FE_DFL_ENV FE_DIVBYZERO FE_DOWNWARD FE_INEXACT FE_INVALID
    FE_OVERFLOW FE_TONEAREST FE_TOWARDZERO FE_UNDERFLOW FE_UPWARD FILENAME_MAX FLT_DECIMAL_DIG
    FLT_DIG FLT_EPSILON FLT_EVAL_METHOD FLT_HAS_SUBNORM FLT_MANT_DIG FLT_MAX FLT_MAX_10_EXP
    FLT_MAX_EXP FLT_MIN FLT_MIN_10_EXP FLT_MIN_EXP FLT_RADIX FLT_ROUNDS FLT_TRUE_MIN FOPEN_MAX
    FPE_CONDTRAP FPE_FLTDIV FPE_FLTINV FPE_FLTOVF FPE_FLTRES FPE_FLTSUB FPE_FLTUND FPE_FLTUNK
    FPE_INTDIV FPE_INTOVF FP_ILOGB0 FP_ILOGBNAN FP_INFINITE FP_NAN FP_NORMAL FP_SUBNORMAL
    FP_XSTATE_MAGIC1 FP_XSTATE_MAGIC2 FP_XSTATE_MAGIC2_SIZE FP_ZERO HOST_NAME_MAX HUGE_VAL
    HUGE_VALF HUGE_VALL I ILL_BADIADDR ILL_BADSTK ILL_COPROC ILL_ILLADR ILL_ILLOPC ILL_ILLOPN
    ILL_ILLTRP ILL_PRVOPC ILL_PRVREG INFINITY INT16_C INT16_MAX INT16_MIN INT32_C INT32_MAX
    INT32_MIN INT64_C INT64_MAX INT64_MIN INT8_C INT8_MAX INT8_MIN INTMAX_C INTMAX_MAX
    INTMAX_MIN INTPTR_MAX INTPTR_MIN INT_FAST16_MAX INT_FAST16_MIN INT_FAST32_MAX
    INT_FAST32_MIN INT_FAST64_MAX INT_FAST64_MIN INT_FAST8_MAX INT_FAST8_MIN INT_LEAST16_MAX
    INT_LEAST16_MIN INT_LEAST32_MAX INT_LEAST32_MIN INT_LEAST64_MAX INT_LEAST64_MIN
    INT_LEAST8_MAX INT_LEAST8_MIN INT_MAX INT_MIN LC_ADDRESS LC_ADDRESS_MASK LC_ALL
    LC_ALL_MASK LC_COLLATE LC_COLLATE_MASK LC_CTYPE LC_CTYPE_MASK LC_GLOBAL_LOCALE
    LC_IDENTIFICATION LC_IDENTIFICATION_MASK LC_MEASUREMENT LC_MEASUREMENT_MASK LC_MESSAGES
    LC_MESSAGES_MASK LC_MONETARY LC_MONETARY_MASK LC_NAME LC_NAME_MASK LC_NUMERIC
    LC_NUMERIC_MASK LC_PAPER LC_PAPER_MASK LC_TELEPHONE LC_TELEPHONE_MASK LC_TIME LC_TIME_MASK
    LDBL_DECIMAL_DIG LDBL_DIG LDBL_EPSILON LDBL_HAS_SUBNORM LDBL_MANT_DIG LDBL_MAX
    LDBL_MAX_10_EXP LDBL_MAX_EXP LDBL_MIN LDBL_MIN_10_EXP LDBL_MIN_EXP LDBL_TRUE_MIN LINE_MAX
    LITTLE_ENDIAN LLONG_MAX LLONG_MIN LOGIN_NAME_MAX LONG_MAX LONG_MIN L_ctermid L_tmpnam
    MATH_ERREXCEPT MATH_ERRNO MAX_CANON MAX_INPUT MB_CUR_MAX MB_LEN_MAX MINSIGSTKSZ
    MQ_PRIO_MAX M_1_PI M_2_PI M_2_SQRTPI M_E M_LN10 M_LN2 M_LOG10E M_LOG2E M_PI M_PI_2 M_PI_4
    M_SQRT1_2 M_SQRT2 NAME_MAX NAN NFDBITS NGREG NGROUPS_MAX NSIG NULL PATH_MAX PDP_ENDIAN
    PIPE_BUF POLL_ERR POLL_HUP POLL_IN POLL_MSG POLL_OUT POLL_PRI PRIX16 PRIX32 PRIX64 PRIX8
    PRIXFAST16 PRIXFAST32 PRIXFAST64 PRIXFAST8 PRIXLEAST16 PRIXLEAST32 PRIXLEAST64 PRIXLEAST8
    PRIXMAX PRIXPTR PRId16 PRId32 PRId64 PRId8 PRIdFAST16 PRIdFAST32 PRIdFAST64 PRIdFAST8
    PRIdLEAST16 PRIdLEAST32 PRIdLEAST64 PRIdLEAST8 PRIdMAX PRIdPTR PRIi16 PRIi32 PRIi64 PRIi8
    PRIiFAST16 PRIiFAST32 PRIiFAST64 PRIiFAST8 PRIiLEAST16 PRIiLEAST32 PRIiLEAST64 PRIiLEAST8
    PRIiMAX PRIiPTR PRIo16 PRIo32 PRIo64 PRIo8 PRIoFAST16 PRIoFAST32 PRIoFAST64 PRIoFAST8
    PRIoLEAST16 PRIoLEAST32 PRIoLEAST64 PRIoLEAST8 PRIoMAX PRIoPTR PRIu16 PRIu32 PRIu64 PRIu8
    PRIuFAST16 PRIuFAST32 PRIuFAST64 PRIuFAST8 PRIuLEAST16 PRIuLEAST32 PRIuLEAST64 PRIuLEAST8
    PRIuMAX PRIuPTR PRIx16 PRIx32 PRIx64 PRIx8 PRIxFAST16 PRIxFAST32 PRIxFAST64 PRIxFAST8
    PRIxLEAST16 PRIxLEAST32 PRIxLEAST64 PRIxLEAST8 PRIxMAX PRIxPTR
    PTHREAD_DESTRUCTOR_ITERATIONS PTHREAD_KEYS_MAX PTHREAD_STACK_MIN PTRDIFF_MAX PTRDIFF_MIN
    P_tmpdir RAND_MAX RE_DUP_MAX RTSIG_MAX SA_INTERRUPT SA_NOCLDSTOP SA_NOCLDWAIT SA_NODEFER
    SA_NOMASK SA_ONESHOT SA_ONSTACK SA_RESETHAND SA_RESTART SA_SIGINFO SA_STACK SCHAR_MAX
    SCHAR_MIN SCNd16 SCNd32 SCNd64 SCNd8 SCNdFAST16 SCNdFAST32 SCNdFAST64 SCNdFAST8
    SCNdLEAST16 SCNdLEAST32 SCNdLEAST64 SCNdLEAST8 SCNdMAX SCNdPTR SCNi16 SCNi32 SCNi64 SCNi8
    SCNiFAST16 SCNiFAST32 SCNiFAST64 SCNiFAST8 SCNiLEAST16 SCNiLEAST32 SCNiLEAST64 SCNiLEAST8
    SCNiMAX SCNiPTR SCNo16 SCNo32 SCNo64 SCNo8 SCNoFAST16 SCNoFAST32 SCNoFAST64 SCNoFAST8
    SCNoLEAST16 SCNoLEAST32 SCNoLEAST64 SCNoLEAST8 SCNoMAX SCNoPTR SCNu16 SCNu32 SCNu64 SCNu8
    SCNuFAST16 SCNuFAST32 SCNuFAST64 SCNuFAST8 SCNuLEAST16 SCNuLEAST32 SCNuLEAST64 SCNuLEAST8
    SCNuMAX SCNuPTR SCNx16 SCNx32 SCNx64 SCNx8 SCNxFAST16 SCNxFAST32 SCNxFAST64 SCNxFAST8
    SCNxLEAST16 SCNxLEAST32 SCNxLEAST64 SCNxLEAST8 SCNxMAX SCNxPTR SEEK_CUR SEEK_END SEEK_SET
    SEGV_ACCADI SEGV_ACCERR SEGV_ADIDERR SEGV_ADIPERR SEGV_BNDERR SEGV_MAPERR SEGV_MTEAERR
    SEGV_MTESERR SEGV_PKUERR SEM_VALUE_MAX SHRT_MAX SHRT_MIN SIGABRT SIGALRM SIGBUS SIGCHLD
    SIGCLD SIGCONT SIGEV_NONE SIGEV_SIGNAL SIGEV_THREAD SIGEV_THREAD_ID SIGFPE SIGHUP SIGILL
    SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMIN
    SIGSEGV SIGSTKFLT SIGSTKSZ SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG
    SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIG_ATOMIC_MAX SIG_ATOMIC_MIN SIG_BLOCK
    SIG_DFL SIG_ERR SIG_IGN SIG_SETMASK SIG_UNBLOCK SIZE_MAX SI_ASYNCIO SI_ASYNCNL SI_DETHREAD
    SI_KERNEL SI_MESGQ SI_QUEUE SI_SIGIO SI_TIMER SI_TKILL SI_USER SSIZE_MAX SS_DISABLE
    SS_ONSTACK TIMER_ABSTIME TIME_UTC TMP_MAX TTY_NAME_MAX UCHAR_MAX UINT16_C UINT16_MAX
    UINT32_C UINT32_MAX UINT64_C UINT64_MAX UINT8_C UINT8_MAX UINTMAX_C UINTMAX_MAX
    UINTPTR_MAX UINT_FAST16_MAX UINT_FAST32_MAX UINT_FAST64_MAX UINT_FAST8_MAX
    UINT_LEAST16_MAX UINT_LEAST32_MAX UINT_LEAST64_MAX UINT_LEAST8_MAX UINT_MAX ULLONG_MAX
    ULONG_MAX USHRT_MAX WCHAR_MAX WCHAR_MIN WCONTINUED WEOF WEXITED WEXITSTATUS WIFCONTINUED
    WIFEXITED WIFSIGNALED WIFSTOPPED WINT_MAX WINT_MIN WNOHANG WNOWAIT WSTOPPED WSTOPSIG
    WTERMSIG WUNTRACED XATTR_LIST_MAX XATTR_NAME_MAX XATTR_SIZE_MAX alignas alignof alloca and
    and_eq assert atomic_compare_exchange_strong atomic_compare_exchange_strong_explicit
    atomic_compare_exchange_weak atomic_compare_exchange_weak_explicit atomic_exchange
    atomic_exchange_explicit atomic_fetch_add atomic_fetch_add_explicit atomic_fetch_and
    atomic_fetch_and_explicit atomic_fetch_or atomic_fetch_or_explicit atomic_fetch_sub
    atomic_fetch_sub_explicit atomic_fetch_xor atomic_fetch_xor_explicit atomic_flag_clear
    atomic_flag_clear_explicit atomic_flag_test_and_set atomic_flag_test_and_set_explicit
    atomic_init atomic_is_lock_free atomic_load atomic_load_explicit atomic_signal_fence
    atomic_store atomic_store_explicit atomic_thread_fence be16toh be32toh be64toh bitand
    bitor bool compl complex errno false fpclassify htobe16 htobe32 htobe64 htole16 htole32
    htole64 isalnum isalnum_l isalpha isalpha_l isascii isascii_l isblank isblank_l iscntrl
    iscntrl_l isdigit isdigit_l isfinite isgraph isgraph_l isgreater isgreaterequal isinf
    isless islessequal islessgreater islower islower_l isnan isnormal isprint isprint_l
    ispunct ispunct_l isspace isspace_l isunordered isupper isupper_l isxdigit isxdigit_l
    kill_dependency le16toh le32toh le64toh linux math_errhandling noreturn not not_eq
    offsetof or or_eq sa_handler sa_sigaction setjmp si_addr si_addr_lsb si_arch si_band
    si_call_addr si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr si_status si_stime
    si_syscall si_timerid si_uid si_upper si_utime si_value sigev_notify_attributes
    sigev_notify_function sigmask signbit sigsetjmp static_assert stderr stdin stdout toascii
    toascii_l true unix va_arg va_copy va_end va_start xor xor_eq
    """.split()
)
"""Macros of the standard headers."""


# -- marked names ----------------------------------------------------------------------------------
#: Identifiers are cut to so many characters, which C99 promises to tell apart.
LONGEST = 63

_LETTERS = string.ascii_uppercase + string.ascii_lowercase
# Where the letters of Unicode's mathematical alphabets begin: A to Z, then a to z.
_VALUES, _WEIGHTS, _DIMS, _OWN = 0x1D400, 0x1D5D4, 0x1D5A0, 0x1D670
_ALPHABETS = (_VALUES, _WEIGHTS, _DIMS, _OWN)
_PLAIN = {start + i: c for start in _ALPHABETS for i, c in enumerate(_LETTERS)}
_JOINT = "\u02cd"  # a letter like a low line, for a dot or for what joins a name and its suffix
_ESCAPE = "\u02d0"  # a letter like a colon, around the code of a character that C has not in names
_PLAIN[ord(_JOINT)] = "_"
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]+){_ESCAPE}")
_MARKED = re.compile("[" + "".join(f"{chr(s)}-{chr(s + 51)}" for s in _ALPHABETS) + r"]\w*")
_OF_HEADERS = ("_WEIGHTS_BYTES", "_STORED_BYTES", "_ARENA_BYTES")  # ends of headers' macros
OF_CPUID = ("bit_", "signature_")  # how those of <cpuid.h> begin, more with each compiler
_WORD = re.compile(r"(?<!\.)(?<!->)\b\w+")  # but no member of a struct
_NO_CODE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#\s*include[^\n]*""", re.DOTALL)
_DEFINITION = re.compile(  # name, parameters, body
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?((?:[^\\\n]|\\.)*)", re.MULTILINE | re.DOTALL
)


@lru_cache(1 << 16)
def _mark(name: str, alphabet: int) -> str:
    parts = (
        c if c.isascii() and (c.isalnum() or c == "_") else _JOINT if c == "." else f"{_ESCAPE}{ord(c):x}{_ESCAPE}"
        for c in name
    )
    text = "".join(parts)
    if text[:1] not in _LETTERS or not text or text.upper().startswith("FX_"):
        text = f"v{_JOINT}{text}"  # such names belong to compilers, and to what fxlite includes
    return chr(alphabet + _LETTERS.index(text[0])) + text[1:]


def value_name(name: str) -> str:
    """A value of the program, marked. Different names stay different."""
    return _mark(name, _VALUES)


def weight_name(path: str) -> str:
    """A weight of the program by its path, marked: ``a.b`` and ``a_b``, and a value called so, too,
    are three."""
    return _mark(path, _WEIGHTS)


def dim_name(name: str) -> str:
    """A named size, marked; one that is marked already stays as it is."""
    return name if _MARKED.match(name) else _mark(name, _DIMS)


def own_name(name: str) -> str:
    """A name that a generator made for text it does not know all of."""
    return _mark(name, _OWN)


def derived(marked: str, suffix: str) -> str:
    """``w_packed``: a name made from another; it differs from a name that the user spells so."""
    return f"{marked}{_JOINT}{suffix}"


def apart(marked: str, taken: Container[str]) -> str:
    """The marked name, or one derived from it, which is not taken."""
    found, number = marked, 1
    while found in taken:
        number += 1
        found = derived(marked, str(number))
    return found


def parts(marked: str) -> list[str]:
    """The parts of a path, ``["layers", "0", "weight"]``, and what was derived from it."""
    return [spelled(part) for part in marked.split(_JOINT)]


def plain(text: str, longest: int = LONGEST) -> str:
    """Text as part of an identifier: ASCII letters, digits and low lines, of a length at most."""
    parts = (c if c.isascii() and c.isalnum() else _in_ascii(c) for c in text)
    return "".join(parts)[:longest]


def file_name(name: str) -> str:
    """A model's name as that of its files, in ASCII: ``BasicBlock`` gives ``basic_block``, and
    ``ResNet18`` and ``UNet``, as everybody writes them, ``resnet18`` and ``unet``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    words = re.sub(r"_Net(?![a-z])", "net", words)
    return plain(re.sub(r"\W+", "_", words).strip("_").lower()).strip("_") or "model"


def spelled(marked: str) -> str:
    """What a marked name is called where nothing is in its way."""
    text = _ESCAPED.sub(lambda found: _in_ascii(chr(int(found[1], 16))), marked.translate(_PLAIN))
    return text if len(text) <= LONGEST else text[:LONGEST].rstrip("_")


def _in_ascii(character: str) -> str:
    letters = [c for c in unicodedata.normalize("NFKD", character) if c.isascii() and c.isalnum()]
    if letters or not character.isalnum():
        return "".join(letters) or "_"
    return f"u{ord(character):x}"


class Scope:
    """How the marked names in a text are spelled: apart from each other, from its words, and from
    the keywords and macros of C and C++ and other ``keywords``. ``library`` is text that is not
    resolved, whose macros the text may use. Called with text, it gives that with those names."""

    def __init__(self, text: str, library: str = "", keywords: Iterable[str] = ()) -> None:
        words = list(_words(text))
        marked = [w for w in dict.fromkeys(words) if _MARKED.match(w)]
        taken = {w for w in words if not _MARKED.match(w)} | KEYWORDS | MACROS | set(keywords)
        taken |= _of_macros(library, frozenset(taken))
        self.names: dict[str, str] = {}
        for name in marked:
            wish = spelled(name)
            is_macro = wish.endswith(_OF_HEADERS) or wish.startswith(OF_CPUID)
            if wish not in taken and not is_macro:
                self.names[name] = wish
                taken.add(wish)
        for name in marked:
            if name not in self.names:
                self.names[name] = _free(spelled(name), taken)
                taken.add(self.names[name])

    def __call__(self, text: str) -> str:
        return _MARKED.sub(lambda found: self.names.get(found[0]) or spelled(found[0]), text)


def resolved(text: str, library: str = "", keywords: Iterable[str] = ()) -> str:
    """Text that is a scope of its own, with all names spelled."""
    return Scope(text, library, keywords)(text)


def _free(wish: str, taken: set[str]) -> str:
    number = 1
    while True:
        end = "_" if number == 1 else f"_{number}"
        name = wish[: LONGEST - len(end)].rstrip("_") + end if wish else end
        if name not in taken:
            return name
        number += 1


def _words(text: str) -> Iterator[str]:
    """The words of C text, without those of comments and strings."""
    return (found[0] for found in _WORD.finditer(_NO_CODE.sub(" ", text)))


@lru_cache(8)
def _macros(library: str) -> dict[str, frozenset[str]]:
    """The macros that a text defines, and the words that each brings with it."""
    return {
        found[1]: frozenset(_words(found[3])) - frozenset(_words(found[2] or ""))
        for found in _DEFINITION.finditer(library)
    }


def _of_macros(library: str, used: frozenset[str]) -> set[str]:
    """All macros of a library, and the words of those that are ``used``."""
    macros = _macros(library)
    found, work = set(macros), [*used & macros.keys()]
    while work:
        for word in macros[work.pop()]:
            if word in macros and word not in used:
                used |= {word}
                work.append(word)
            found.add(word)
    return found
