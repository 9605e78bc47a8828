//go:build unix

package process

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/agent"
)

// This file defines the files by which an agent and its supervisors communicate, in the folder of the node:
//
//	until                      when everything has to stop: the run of the machine, and nanoseconds since its boot
//	run/web-0@17/command.json  what is to run, written before the supervisor is started
//	run/web-0@17/lock          locked as long as the supervisor, or a process that it has started, lives
//	run/web-0@17/stop          made by the agent: stop it
//	run/web-0@17/ready         made by the process, if it says itself when it serves
//	run/web-0@17/exit.json     how it has ended, written by the supervisor
//	run/web-0@17/log           what it has printed

// exit records how an instance has ended.
type exit struct {
	// Code is the exit code of the process.
	Code int `json:"code"`
	// Stopped says that the supervisor stopped the process; false: the process ended by itself.
	Stopped bool `json:"stopped,omitempty"`
}

// folderOf returns the folder of an instance.
func (r *Runtime) folderOf(i agent.Instance) string {
	return filepath.Join(r.Dir, "run", fmt.Sprintf("%s@%d", url.PathEscape(string(i.Capsule)), i.Since))
}

// instanceOf returns the instance to which a folder belongs.
func instanceOf(name string) (i agent.Instance, ok bool) {
	at := strings.LastIndexByte(name, '@')
	if at < 0 {
		return i, false
	}
	id, err := url.PathUnescape(name[:at])
	if err != nil {
		return i, false
	}
	since, err := strconv.ParseUint(name[at+1:], 10, 64)
	return agent.Instance{Capsule: orbit.CapsuleID(id), Since: orbit.Revision(since)}, err == nil
}

// locked reports whether a process holds the lock of an instance's folder.
func locked(folder string) (bool, error) {
	f, err := os.Open(filepath.Join(folder, "lock"))
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK { //nolint:errorlint // a number, never wrapped
		return true, nil
	}
	return false, err
}

// write writes a file as a whole or not at all.
func write(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// read reads a file that write has written.
func read(path string, value any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// deadline is the content of the file until.
type deadline struct {
	Boot string        `json:"boot"`
	At   time.Duration `json:"at"`
}

// left returns for how long the processes of the node may still run; 0 or less: they may not run.
func left(dir string) (time.Duration, error) {
	now, boot, err := sinceBoot()
	if err != nil {
		return 0, err
	}
	var d deadline
	if err := read(filepath.Join(dir, "until"), &d); err != nil {
		return 0, err
	}
	if d.Boot != boot {
		return 0, nil
	}
	return d.At - now, nil
}
