package node

import (
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns how long the machine runs, by a clock that is the same in all processes and that nobody sets, and which run of the
// machine that is.
func sinceBoot() (now time.Duration, boot string, err error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, "", err
	}
	var t unix.Timespec
	err = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano()), strings.TrimSpace(string(id)), err
}

// childOf makes a process that is in a group of its own and does not outlive the thread that starts it.
func childOf() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
