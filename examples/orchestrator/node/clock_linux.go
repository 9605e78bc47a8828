package node

import (
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the machine booted and the id of that boot. The clock is the same in all processes,
// and nobody can set it.
func sinceBoot() (now time.Duration, boot string, err error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0, "", err
	}
	var t unix.Timespec
	err = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano()), strings.TrimSpace(string(id)), err
}

// childOf makes a process in a process group of its own that does not outlive the thread that starts it.
func childOf() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
