//go:build unix && !linux

package node

import (
	"syscall"
	"time"
)

// sinceBoot returns the time of day. A machine whose clock is set back while its agent is dead is fenced too late.
func sinceBoot() (now time.Duration, boot string, err error) {
	return time.Duration(time.Now().UnixNano()), "any", nil
}

// childOf makes a process that is in a group of its own. It outlives a supervisor that is killed: stop it by hand then.
func childOf() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
