use super::*;

const HERE: &str = "/tmp/recording";

fn found(link: &str, text: &str) -> Option<What> {
    what(link, text, Path::new(HERE))
}

#[test]
fn each_descriptor_is_known_by_what_the_kernel_says() {
    let set = "pos:\t0\nflags:\t02000002\ntfd:        8 events: 80000019 data:     7f00deadbeef  pos:0 ino:1f6 sdev:8\n";
    let Some(What::Set(members)) = found("anon_inode:[eventpoll]", set) else {
        panic!("it is a set")
    };
    let member = Member {
        number: 8,
        events: 0x8000_0019,
        data: 0x7f00_dead_beef,
        inode: 0x1f6,
    };
    assert_eq!(members, [member]);
    let timer =
        "clockid: 1\nticks: 0\nsettime flags: 01\nit_value: (2, 500)\nit_interval: (1, 0)\n";
    let running = What::Timer {
        clock: 1,
        value: 2_000_000_500,
        interval: 1_000_000_000,
    };
    assert_eq!(found("anon_inode:[timerfd]", timer), Some(running));
    let semaphore = "eventfd-count:                0\neventfd-semaphore: 1\n";
    let event = What::Event { is_semaphore: true };
    assert_eq!(found("anon_inode:[eventfd]", semaphore), Some(event));
    let end = What::Pipe {
        pipe: "pipe:[77]".to_owned(),
        is_written: true,
    };
    assert_eq!(found("pipe:[77]", "flags:\t04001\n"), Some(end));
    let log = What::File {
        path: Text::from("p0/t1"),
        position: 5,
    };
    assert_eq!(found("/tmp/recording/p0/t1", "pos:\t5\n"), Some(log));
    assert_eq!(found("/tmp/x (deleted)", "pos:\t5\n"), None);
    assert_eq!(found("anon_inode:[io_uring]", "pos:\t0\n"), None);
}

/// A process that has descriptors of each kind is this one.
#[test]
fn descriptors_are_made_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "0123456789").unwrap();
    // SAFETY: a child that makes descriptors, and ends with this test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain system calls.
        unsafe { child_with_descriptors(&path) };
    }
    let begun = std::time::Instant::now();
    let all = loop {
        let all = of(child, Path::new("/nowhere"));
        match &all {
            // The last one that it makes.
            Ok(found) if found.iter().any(|one| one.number == 60) => break all.unwrap(),
            _ if begun.elapsed().as_secs() < 10 => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            _ => panic!("{all:?}"),
        }
    };
    let texts = |number: RawFd| {
        let what = all.iter().find(|one| one.number == number);
        what.map(|one| one.what.clone()).unwrap()
    };
    assert!(matches!(texts(50), What::File { position: 3, .. }));
    assert_eq!(texts(51), What::CopyOf(50));
    assert!(matches!(texts(52), What::Socket(_)));
    assert!(matches!(texts(53), What::Set(members) if members.len() == 1));
    assert!(matches!(texts(54), What::Paired { other: 56, .. }));
    assert!(matches!(texts(56), What::Paired { other: 54, .. }));
    let opened = make(&all, Path::new("/nowhere")).unwrap();
    // SAFETY: ends the child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    let file = |number: RawFd| {
        let found = opened.files.iter().find(|(_, theirs)| *theirs == number);
        found.unwrap().0.try_clone().unwrap()
    };
    assert!(socket::are_a_pair(&file(54), &file(56)), "as they were");
    let again = Socket::of(&file(52)).unwrap();
    assert_eq!(
        What::Socket(again),
        texts(52),
        "port and options are the same"
    );
    // SAFETY: numbers only.
    let position = |file: &OwnedFd| unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR) };
    assert_eq!(position(&file(50)), 3);
    // SAFETY: as above.
    unsafe { libc::lseek(file(50).as_raw_fd(), 7, libc::SEEK_SET) };
    assert_eq!(position(&file(51)), 7, "two numbers of one file");
    let watch = opened.watches.iter().find(|watch| watch.set == 53).unwrap();
    assert_eq!((watch.member, watch.data), (52, 99));
}

/// # Safety
/// Numbers of the caller's.
unsafe fn place(file: RawFd, number: RawFd) {
    // SAFETY: the caller's promise.
    unsafe {
        libc::dup2(file, number);
        libc::close(file);
    }
}

/// # Safety
/// In a forked child.
unsafe fn child_with_descriptors(path: &Path) -> ! {
    use std::os::unix::ffi::OsStrExt as _;
    let mut name = [0u8; 512];
    name[..path.as_os_str().len()].copy_from_slice(path.as_os_str().as_bytes());
    // SAFETY: plain system calls on values of this function.
    unsafe {
        libc::alarm(20);
        place(libc::open(name.as_ptr().cast(), libc::O_RDONLY), 50);
        libc::lseek(50, 3, libc::SEEK_SET);
        libc::dup2(50, 51);
        let on = 1i32;
        place(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0), 52);
        for (level, option) in [
            (libc::SOL_SOCKET, libc::SO_REUSEPORT),
            (6, libc::TCP_NODELAY),
        ] {
            libc::setsockopt(52, level, option, (&raw const on).cast(), 4);
        }
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        libc::bind(52, (&raw const address).cast(), 16);
        place(libc::epoll_create1(0), 53);
        let mut event = libc::epoll_event { events: 1, u64: 99 };
        libc::epoll_ctl(53, libc::EPOLL_CTL_ADD, 52, &mut event);
        let mut ends = [0i32; 2];
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr());
        place(ends[0], 56);
        place(ends[1], 54);
        libc::dup2(53, 60);
        loop {
            libc::pause();
        }
    }
}
