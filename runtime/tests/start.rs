//! Starting where user threads are not to be had: the test harness has threads of its own.

use heddle::{Mode, Options, StartError};

#[test]
fn what_cannot_be_is_said_and_kernel_threads_do() {
    assert_eq!(heddle::start(Options::new().workers(0)), Err(StartError::Workers(0)));
    assert_eq!(heddle::start(Options::new().workers(1025)), Err(StartError::Workers(1025)));
    assert_eq!(heddle::start(Options::new().slice_ms(10_001)), Err(StartError::Slice(10_001)));
    assert_eq!(heddle::start(Options::new().helper_stack(100)), Err(StartError::Stack(100)));
    let refused = heddle::start(Options::new().mode(Mode::User).workers(2));
    assert!(matches!(refused, Err(StartError::OtherThreads(n)) if n > 1), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("threads"));

    // A start that was refused is none.
    assert_eq!(heddle::start(Options::new().mode(Mode::Kernel).workers(3)), Ok(()));
    assert_eq!(heddle::start(Options::new()), Err(StartError::AlreadyStarted));
    assert_eq!((heddle::mode(), heddle::workers()), (Mode::Kernel, 3));
    let (a, b) = heddle::join(|| 1, || heddle::spawn(|| 2).join().unwrap());
    assert_eq!(a + b, 3);
}
