package process

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// The signals that pause a process and resume it.
const (
	stop   = syscall.SIGSTOP
	resume = syscall.SIGCONT
)

// awaitStop waits until every thread of a child has stopped, because a signal takes effect some time after it was sent. It
// does not reap a child that has ended meanwhile; Process.attend does.
func awaitStop(pid int) error {
	for {
		var how unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &how, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("process: wait for the stop: %w", err)
		case how.Code != cldStopped:
			return errors.New("process: it has ended and cannot be paused")
		default:
			return nil
		}
	}
}

// cldStopped is the code (CLD_STOPPED) with which waitid reports a child that has stopped.
const cldStopped = 5
