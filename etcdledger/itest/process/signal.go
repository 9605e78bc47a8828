package process

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// What pauses a process and lets it go on.
const (
	stop   = syscall.SIGSTOP
	resume = syscall.SIGCONT
)

// awaitStop waits until every thread of a child has stopped: a stop signal takes effect some time after it was sent.
// It only looks: a child that has ended instead is left to who waits for it.
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

// cldStopped is what waitid says of a child that has stopped (CLD_STOPPED).
const cldStopped = 5
