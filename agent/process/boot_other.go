//go:build unix && !linux

package process

import (
	"syscall"
	"time"
)

// sinceBoot returns the time of day, because this system has no better clock here. If the clock is set back while the
// agent is dead, the node is fenced too late.
func sinceBoot() (now time.Duration, boot string, err error) {
	return time.Duration(time.Now().UnixNano()), "any", nil
}

// childOf makes a process in a process group of its own. The process outlives a supervisor that is killed: then stop it
// by hand.
func childOf() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
