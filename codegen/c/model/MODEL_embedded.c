/* The weights as a part of the program, which reads no file: link MODEL_embedded.o, and declare
 *
 *     extern const unsigned char MODEL_embedded_weights[];
 *
 * They are aligned as MODEL_run wants them. */
#if defined(__has_embed)
_Alignas(64) const unsigned char MODEL_embedded_weights[] = {
#embed "MODEL_weights.bin"
};
#elif defined(__ELF__) && defined(__GNUC__) && !defined(__TINYC__)
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    ".globl MODEL_embedded_weights\n"
    "MODEL_embedded_weights:\n"
    ".incbin \"MODEL_weights.bin\"\n"
    ".previous\n");
#else
#error "This compiler embeds no files (#embed of C23, .incbin): compile this one with another."
#endif
