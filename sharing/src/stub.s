# What `heddle sharing build` links into a program or shared library in place of the sanitizer's library.
#
# The compiler's instrumentation calls __tsan_*. Here each of those calls passes the access on through a table and does
# what the program asked for (the atomic operations). The table points to functions that do nothing until the detector,
# which `heddle sharing run` preloads, has put its own there: a program that is run plainly just runs.
#
# All symbols are hidden: each module has its own table. The hooks' signatures are in `attach.rs`.

.set VERSION, 1
.set WRITE, 1
.set ATOMIC, 2

# How `heddle sharing run` recognises what was built for it.
.section .note.heddle.sharing,"a",@note
.p2align 2
.long 7
.long 4
.long 0x53484152
.asciz "Heddle"
.p2align 2
.long VERSION

.section .data.heddle_sharing,"aw",@progbits
.p2align 3
table:
hook_access: .quad nothing
hook_entry: .quad nothing
hook_exit: .quad nothing
attached: .quad 0

.section .rodata.heddle_sharing,"a",@progbits
attach_name: .asciz "heddle_sharing_attach"

.section .text.heddle_sharing,"ax",@progbits
nothing:
    ret

.macro function name
    .globl \name
    .hidden \name
    .type \name,@function
    .p2align 4
\name:
.endm

# Each instrumented object's constructor calls this; the detector answers to its name if it is there.
function __tsan_init
    cmp qword ptr [rip + attached], 0
    jne nothing
    mov qword ptr [rip + attached], 1
    sub rsp, 8
    xor edi, edi
    lea rsi, [rip + attach_name]
    call dlsym@PLT
    test rax, rax
    jz 1f
    lea rdi, [rip + table]
    mov esi, VERSION
    call rax
1:  add rsp, 8
    ret

function __tsan_func_entry
    jmp qword ptr [rip + hook_entry]
function __tsan_func_exit
    jmp qword ptr [rip + hook_exit]

# hook_access(address, size, caller, flags)
.macro access name, size, flags
function \name
    mov esi, \size
    mov rdx, [rsp]
    mov ecx, \flags
    jmp qword ptr [rip + hook_access]
function \name\()_pc
    mov rdx, rsi
    mov esi, \size
    mov ecx, \flags
    jmp qword ptr [rip + hook_access]
.endm
.irp size, 1, 2, 4, 8, 16
    access __tsan_read\size, \size, 0
    access __tsan_write\size, \size, WRITE
    access __tsan_volatile_read\size, \size, 0
    access __tsan_volatile_write\size, \size, WRITE
    access __tsan_unaligned_read\size, \size, 0
    access __tsan_unaligned_write\size, \size, WRITE
    access __tsan_unaligned_volatile_read\size, \size, 0
    access __tsan_unaligned_volatile_write\size, \size, WRITE
    access __tsan_read_write\size, \size, WRITE
    access __tsan_unaligned_read_write\size, \size, WRITE
.endr
access __tsan_vptr_read, 8, 0
access __tsan_vptr_update, 8, WRITE

function __tsan_read_range
    mov rdx, [rsp]
    xor ecx, ecx
    jmp qword ptr [rip + hook_access]
function __tsan_write_range
    mov rdx, [rsp]
    mov ecx, WRITE
    jmp qword ptr [rip + hook_access]

# Tells of an access in the middle of a function that then goes on; keeps the argument registers. At its start, the
# caller's address is on top of the stack.
.macro keep
    push rdi
    push rsi
    push rdx
    push rcx
    push r8
    push r9
    sub rsp, 8
.endm
.macro restore
    add rsp, 8
    pop r9
    pop r8
    pop rcx
    pop rdx
    pop rsi
    pop rdi
.endm
.macro tell size, flags
    keep
    mov esi, \size
    mov rdx, [rsp + 56]
    mov ecx, \flags
    call qword ptr [rip + hook_access]
    restore
.endm

function __tsan_memcpy
    keep
    mov rdi, [rsp + 40]
    mov rsi, [rsp + 32]
    call tell_copy
    restore
    jmp memcpy@PLT
function __tsan_memmove
    keep
    mov rdi, [rsp + 40]
    mov rsi, [rsp + 32]
    call tell_copy
    restore
    jmp memmove@PLT
function __tsan_memset
    keep
    mov rsi, rdx
    mov rdx, [rsp + 56]
    mov ecx, WRITE
    call qword ptr [rip + hook_access]
    restore
    jmp memset@PLT
# Called with what `keep` saved above the return address: destination [rsp+48], source [rsp+40], length [rsp+32],
# caller [rsp+64].
tell_copy:
    sub rsp, 8
    mov rdi, [rsp + 48]
    mov rsi, [rsp + 40]
    mov rdx, [rsp + 72]
    xor ecx, ecx
    call qword ptr [rip + hook_access]
    mov rdi, [rsp + 56]
    mov rsi, [rsp + 40]
    mov rdx, [rsp + 72]
    mov ecx, WRITE
    call qword ptr [rip + hook_access]
    add rsp, 8
    ret

# Atomic operations. Sequentially consistent always: the strongest order is a valid answer to any.
.macro logical bits, ptr, size, a, c, s, op
function __tsan_atomic\bits\()_fetch_\op
    tell \size, WRITE + ATOMIC
    mov \a, \ptr ptr [rdi]
1:  mov \c, \a
    \op \c, \s
    lock cmpxchg \ptr ptr [rdi], \c
    jne 1b
    ret
.endm

.macro atomics bits, ptr, size, a, c, d, s
function __tsan_atomic\bits\()_load
    tell \size, ATOMIC
    mov \a, \ptr ptr [rdi]
    ret
function __tsan_atomic\bits\()_store
    tell \size, WRITE + ATOMIC
    xchg \ptr ptr [rdi], \s
    ret
function __tsan_atomic\bits\()_exchange
    tell \size, WRITE + ATOMIC
    mov rax, rsi
    xchg \ptr ptr [rdi], \a
    ret
function __tsan_atomic\bits\()_fetch_add
    tell \size, WRITE + ATOMIC
    mov rax, rsi
    lock xadd \ptr ptr [rdi], \a
    ret
function __tsan_atomic\bits\()_fetch_sub
    tell \size, WRITE + ATOMIC
    mov rax, rsi
    neg rax
    lock xadd \ptr ptr [rdi], \a
    ret
logical \bits, \ptr, \size, \a, \c, \s, and
logical \bits, \ptr, \size, \a, \c, \s, or
logical \bits, \ptr, \size, \a, \c, \s, xor
function __tsan_atomic\bits\()_fetch_nand
    tell \size, WRITE + ATOMIC
    mov \a, \ptr ptr [rdi]
1:  mov \c, \a
    and \c, \s
    not \c
    lock cmpxchg \ptr ptr [rdi], \c
    jne 1b
    ret
function __tsan_atomic\bits\()_compare_exchange_strong
function __tsan_atomic\bits\()_compare_exchange_weak
    tell \size, WRITE + ATOMIC
    mov \a, \ptr ptr [rsi]
    lock cmpxchg \ptr ptr [rdi], \d
    jne 1f
    mov eax, 1
    ret
1:  mov \ptr ptr [rsi], \a
    xor eax, eax
    ret
function __tsan_atomic\bits\()_compare_exchange_val
    tell \size, WRITE + ATOMIC
    mov rax, rsi
    lock cmpxchg \ptr ptr [rdi], \d
    ret
.endm
atomics 8, byte, 1, al, cl, dl, sil
atomics 16, word, 2, ax, cx, dx, si
atomics 32, dword, 4, eax, ecx, edx, esi
atomics 64, qword, 8, rax, rcx, rdx, rsi

# 16 bytes, with cmpxchg16b: the value comes in rsi (low) and rdx, the answer goes out in rax (low) and rdx.
.macro wide name, flags=WRITE + ATOMIC
function __tsan_atomic128_\name
    tell 16, \flags
    push rbx
    mov r8, rsi
    mov r9, rdx
    mov rax, [rdi]
    mov rdx, [rdi + 8]
1:  mov rbx, rax
    mov rcx, rdx
    wide_\name
    lock cmpxchg16b [rdi]
    jne 1b
    pop rbx
    ret
.endm
# A load writes back what is there.
.macro wide_load
.endm
.macro wide_store
    mov rbx, r8
    mov rcx, r9
.endm
.macro wide_exchange
    wide_store
.endm
.macro wide_fetch_add
    add rbx, r8
    adc rcx, r9
.endm
.macro wide_fetch_sub
    sub rbx, r8
    sbb rcx, r9
.endm
.macro wide_fetch_and
    and rbx, r8
    and rcx, r9
.endm
.macro wide_fetch_or
    or rbx, r8
    or rcx, r9
.endm
.macro wide_fetch_xor
    xor rbx, r8
    xor rcx, r9
.endm
.macro wide_fetch_nand
    wide_fetch_and
    not rbx
    not rcx
.endm
wide load, ATOMIC
.irp op, store, exchange, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_nand
    wide \op
.endr
function __tsan_atomic128_compare_exchange_strong
function __tsan_atomic128_compare_exchange_weak
    tell 16, WRITE + ATOMIC
    push rbx
    mov rbx, rdx
    mov rax, [rsi]
    mov rdx, [rsi + 8]
    lock cmpxchg16b [rdi]
    pop rbx
    jne 1f
    mov eax, 1
    ret
1:  mov [rsi], rax
    mov [rsi + 8], rdx
    xor eax, eax
    ret
function __tsan_atomic128_compare_exchange_val
    tell 16, WRITE + ATOMIC
    push rbx
    mov rax, rsi
    mov rbx, rcx
    mov rcx, r8
    lock cmpxchg16b [rdi]
    pop rbx
    ret

function __tsan_atomic_thread_fence
    mfence
    ret
function __tsan_atomic_signal_fence
    ret

# What else a program may call when it finds itself compiled for the sanitizer: it tells of nothing that matters here.
.irp name, ignore_thread_begin, ignore_thread_end, acquire, release, mutex_create, mutex_destroy, mutex_pre_lock, mutex_post_lock, mutex_pre_unlock, mutex_post_unlock, mutex_pre_signal, mutex_post_signal, mutex_pre_divert, mutex_post_divert, get_current_fiber, create_fiber, destroy_fiber, switch_to_fiber, set_fiber_name
function __tsan_\name
    xor eax, eax
    ret
.endr
.irp name, HappensBefore, HappensAfter, IgnoreReadsBegin, IgnoreReadsEnd, IgnoreWritesBegin, IgnoreWritesEnd, IgnoreSyncBegin, IgnoreSyncEnd, BenignRaceSized, BenignRace, RWLockCreate, RWLockDestroy, RWLockAcquired, RWLockReleased, NewMemory, ThreadName
function Annotate\name
    xor eax, eax
    ret
.endr

.section .note.GNU-stack,"",@progbits
