//! Tasks in worker processes.

use std::ffi::{c_int, c_void};
use std::os::unix::process::ExitStatusExt;

use runtime::Mode;
use runtime::cancel::Limit;
use runtime::process::{self, ArenaFull, ArenaVec, TaskError, TaskHandle};

use crate::call;
use crate::error::{Outcome, Refusal, answer, store};
use crate::handles::Handles;
use crate::limit::{HEDDLE_FOREVER, heddle_token_t, limit, time};
use crate::start::{heddle_mode_t, read_mode, write_mode};
use crate::thread::code_of;

/// A task. No two tasks of a process ever have the same, so that one that has been joined or detached is answered by
/// ESRCH.
pub type heddle_task_t = u64;

/// No task.
pub const HEDDLE_TASK_NONE: heddle_task_t = 0;

/// Sixteen bytes with the alignment that any plain data is content with.
type Unit = u128;

const UNIT: usize = size_of::<Unit>();

runtime::shareable! {
    /// What a task is given: the program's function, and memory of the arena with the argument, behind it room for the result.
    struct Order {
        function: usize,
        memory: ArenaVec<Unit>,
        argument_size: usize,
        result_size: usize,
    }
}

/// A task's result is in the memory that it was given.
struct Sent {
    handle: TaskHandle<ArenaVec<Unit>>,
    argument_size: usize,
    result_size: usize,
}

static TASKS: Handles<Sent> = Handles::new();

/// Where the result is in the memory.
fn result_at(argument_size: usize) -> usize {
    argument_size.div_ceil(UNIT)
}

fn perform(order: Order) -> ArenaVec<Unit> {
    let Order { function, mut memory, argument_size, result_size } = order;
    let start = memory.as_mut_ptr();
    // SAFETY: the memory was made for both.
    let result = unsafe { start.add(result_at(argument_size)) };
    let argument = if argument_size == 0 { std::ptr::null_mut() } else { start };
    let result = if result_size == 0 { std::ptr::null_mut() } else { result };
    // SAFETY: such a function, which the sender's process has as well as ours.
    unsafe { call::with_two(function as *const c_void, argument.cast(), result.cast()) };
    memory
}

/// Memory of the arena, all 0.
fn memory(units: usize) -> Result<ArenaVec<Unit>, ArenaFull> {
    const ZEROS: [Unit; 256] = [0; 256];
    let mut memory = ArenaVec::try_with_capacity(units)?;
    while memory.len() < units {
        let more = (units - memory.len()).min(ZEROS.len());
        memory.extend_from_slice(&ZEROS[..more]);
    }
    Ok(memory)
}

fn refuse(why: &TaskError) -> Refusal {
    let code = match why {
        TaskError::Died(_) => libc::EOWNERDEAD,
        TaskError::Lost => libc::ECHILD,
        TaskError::Function => libc::EFAULT,
        TaskError::Full(_) => libc::ENOMEM,
        TaskError::TooMany => libc::EAGAIN,
        TaskError::NoProcesses => libc::ENOTSUP,
        TaskError::Thread(why) => code_of(why),
        _ => libc::EIO,
    };
    Refusal::with_text(code, why)
}

/// Runs fn(argument, result) as a task and stores it in *task: in process mode in another process, otherwise on a new
/// thread. `mode` is HEDDLE_MODE_DEFAULT, or says which whatever the process's is. It starts the process if nothing
/// has.
///
/// What `arg` points to is copied, `arg_size` bytes of plain data: the function gets the address of the copy, aligned
/// as by malloc, and that of `result_size` bytes for the result, all 0, which heddle_task_join copies back. Pointers in
/// the data mean nothing in another process, but for those to functions and constants of the program. NULL stands for
/// no bytes.
///
/// The other process has what the program had when it called heddle_start; what the program changes later it does not
/// see. A process that dies, by a signal, abort or exit, or because a C++ exception leaves `fn`, fails the tasks that
/// it had begun and is replaced.
///
/// It does not block. Errors, with words in heddle_last_error; no task is made then: EINVAL: a null pointer, not a
/// mode. EFAULT: the function is in code that was loaded after heddle_start, which worker processes do not have.
/// ENOTSUP: HEDDLE_MODE_PROCESS was asked for and there are no worker processes, or user threads and there are none.
/// ENOMEM: the arena has no room for the data. EAGAIN: 65536 tasks have not been joined. Otherwise as
/// heddle_thread_create.
///
/// # Safety
/// `arg` points to `arg_size` bytes; `fn` may be called so in another process or on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_task_create(
    task: *mut heddle_task_t,
    mode: heddle_mode_t,
    r#fn: Option<extern "C" fn(*const c_void, *mut c_void)>,
    arg: *const c_void,
    arg_size: usize,
    result_size: usize,
) -> c_int {
    answer("heddle_task_create", || {
        let function = r#fn.ok_or_else(|| Refusal::with_text(libc::EINVAL, "a task without a function"))?;
        if arg.is_null() && arg_size != 0 {
            return Err(Refusal::with_text(libc::EINVAL, "an argument that is NULL and not empty"));
        }
        // SAFETY: the caller's.
        unsafe { store(task, HEDDLE_TASK_NONE)? };
        let mode = read_mode(mode)?.unwrap_or_else(process::task_mode);
        if mode == Mode::Process && process::count() != 0 && !process::has_code(function as *const ()) {
            return Err(refuse(&TaskError::Function));
        }
        let sizes = arg_size.checked_next_multiple_of(UNIT).and_then(|size| size.checked_add(result_size));
        let units = sizes.ok_or(libc::ENOMEM)?.div_ceil(UNIT);
        let mut memory = memory(units).map_err(|full| refuse(&TaskError::Full(full)))?;
        // SAFETY: the caller's; there is room. No bytes may come from null.
        unsafe { std::ptr::copy(arg.cast::<u8>(), memory.as_mut_ptr().cast::<u8>(), arg_size) };
        let order = Order { function: function as usize, memory, argument_size: arg_size, result_size };
        let handle = process::task_on(mode, perform, order);
        if let Some(why) = handle.refusal() {
            return Err(refuse(why));
        }
        let id = TASKS.add(Sent { handle, argument_size: arg_size, result_size });
        // SAFETY: the caller's.
        unsafe { store(task, id) }
    })
}

/// Waits until the task is over, and forgets it. What its function has left in its result is copied to *result, which
/// may be NULL.
///
/// It parks the calling thread. What the task did to the result comes before what the caller does next. Errors, with
/// words in heddle_last_error; *result is as it was: EOWNERDEAD: the process that ran it has died; *status, unless
/// `status` is NULL, says how, as waitpid tells it (WIFSIGNALED and so on). ECHILD: the program has lost its worker
/// processes. The task is forgotten then too. ESRCH: there is no such task: it has been joined or detached. EINVAL:
/// another thread joins it.
///
/// # Safety
/// `result` is null or points to as many bytes as the task's result has; `status` is null or points to an int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_task_join(task: heddle_task_t, result: *mut c_void, status: *mut c_int) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_task_join", || unsafe { join(task, result, status, time(HEDDLE_FOREVER)) })
}

/// As heddle_task_join, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled. Errors:
/// ETIMEDOUT, ECANCELED: it was not over until then, goes on, and may be joined again. Others as there.
///
/// # Safety
/// As for heddle_task_join; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_task_join_within(
    task: heddle_task_t,
    result: *mut c_void,
    status: *mut c_int,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_task_join_within", || unsafe { join(task, result, status, limit(nanoseconds, token)?) })
}

/// # Safety
/// As for heddle_task_join.
unsafe fn join(task: heddle_task_t, result: *mut c_void, status: *mut c_int, limit: Limit<'_>) -> Outcome {
    if !status.is_aligned() {
        return Err(libc::EINVAL.into());
    }
    let sent = TASKS.take(task)?;
    if let Err(why) = sent.handle.wait_until(limit) {
        TASKS.put_back(task, sent);
        return Err(why.into());
    }
    TASKS.forget(task);
    let Sent { handle, argument_size, result_size } = sent;
    let memory = handle.join().map_err(|why| {
        if let TaskError::Died(how) = &why
            && !status.is_null()
        {
            // SAFETY: the caller's.
            unsafe { status.write(how.into_raw()) };
        }
        refuse(&why)
    })?;
    if !result.is_null() {
        // SAFETY: the caller's; the memory was made for argument and result.
        unsafe {
            let from = memory.as_ptr().add(result_at(argument_size)).cast::<u8>();
            std::ptr::copy_nonoverlapping(from, result.cast::<u8>(), result_size);
        }
    }
    Ok(())
}

/// Forgets the task, which goes on; nobody hears of its result or its process's death. Errors: ESRCH: there is no such
/// task. EINVAL: another thread joins it.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_task_detach(task: heddle_task_t) -> c_int {
    answer("heddle_task_detach", || {
        drop(TASKS.take(task)?);
        TASKS.forget(task);
        Ok(())
    })
}

/// Where tasks run by default: HEDDLE_MODE_PROCESS, or on threads of heddle_mode's kind. Starts the process if nothing
/// has.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_task_mode() -> heddle_mode_t {
    write_mode(process::task_mode())
}

/// How many worker processes the program has; 0 outside of process mode.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_processes() -> usize {
    process::count()
}

/// Which of the program's processes this is: 0 the first one, from 1 on the workers. A replacement has the place of the
/// one that died.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_process_place() -> usize {
    process::place()
}
