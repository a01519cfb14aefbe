/* The library that static_tls.c loads again and again: its thread-locals must lie in the block that each thread has from
   its start, of which only so much is left for libraries that come later. */
__attribute__((tls_model("initial-exec"))) static __thread int mark = 77;
__attribute__((tls_model("initial-exec"))) static __thread char rest[124];

/* What was there before; 0 if anything is wrong. */
int lib_mark(int new) {
  int old = mark;
  for (unsigned i = 1; i < sizeof rest; i++)
    if (rest[i]) return 0;
  if (rest[0] != (char)(old == 77 ? 0 : old)) return 0;
  mark = new;
  rest[0] = (char)new;
  return old;
}
