package process

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bootID returns the id of the machine's present boot.
var bootID = sync.OnceValues(func() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
})

// sinceBoot returns the time since the machine booted, in steps of 10 ms, and the id of that boot. All processes
// read the same clock. It runs while the machine is suspended, and cannot be set.
func sinceBoot() (now time.Duration, boot string, err error) {
	if boot, err = bootID(); err != nil {
		return 0, "", err
	}
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, "", err
	}
	seconds, _, _ := strings.Cut(string(text), " ")
	if now, err = time.ParseDuration(seconds + "s"); err != nil {
		return 0, "", fmt.Errorf("process: /proc/uptime: %w", err)
	}
	return now, boot, nil
}

// childOf makes a process in a process group of its own that does not outlive the thread that starts it.
func childOf() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
