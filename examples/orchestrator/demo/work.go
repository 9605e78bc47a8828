package demo

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Books are the records that the processes of jobs write: a line in Dir/books when a process begins, has ended or was
// stopped. Each process holds a lock with the name of its member while it runs. The kernel frees the lock when the
// process is gone, however it ends.
type Books struct {
	// Dir is the folder, which all nodes share.
	Dir string
}

// Entry is one line of a process.
type Entry struct {
	// What is the event: begin, done, stop or doubled.
	What string
	// Member, Node and Version are the id of the member, its node, and the version of its program.
	Member, Node, Version string
}

// Open makes the folder.
func (b Books) Open() error { return os.MkdirAll(filepath.Join(b.Dir, "locks"), 0o700) }

func (b Books) path() string { return filepath.Join(b.Dir, "books") }

// write appends a line by one system call, so that lines of several processes do not mix.
func (b Books) write(e Entry) error {
	f, err := os.OpenFile(b.path(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, e.What, e.Member, e.Node, e.Version)
	return errors.Join(err, f.Close())
}

// Read returns all entries.
func (b Books) Read() (all []Entry, err error) {
	f, err := os.Open(b.path())
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) == 4 {
			all = append(all, Entry{words[0], words[1], words[2], words[3]})
		}
	}
	return all, lines.Err()
}

// lock takes the lock of a member. It reports false if another process has the lock.
func (b Books) lock(member string) (free bool, err error) {
	f, err := os.OpenFile(filepath.Join(b.Dir, "locks", member), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, f.Close()
	case err != nil:
		return false, errors.Join(err, f.Close())
	}
	locks = append(locks, f)
	return true, nil
}

// locks keeps the files open, and with them the locks, as long as the process lives.
var locks []*os.File

// Runs reports whether a process of a member is at work.
func (b Books) Runs(member string) (bool, error) {
	f, err := os.Open(filepath.Join(b.Dir, "locks", member))
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Work is a process of a job: it writes down that it begins, and sleeps.
func Work(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("work", flag.ContinueOnError)
	dir := flags.String("books", "", "folder of the books")
	version := flags.String("version", "v1", "written in the books")
	lasts := flags.Duration("for", 0, "how long it works; 0: until it is stopped")
	stops := flags.Duration("stops", 100*time.Millisecond, "how long it takes to stop")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, e := Books{*dir}, Entry{"begin", os.Getenv("ORBIT_CAPSULE"), os.Getenv("ORBIT_NODE"), *version}
	free, err := b.lock(e.Member)
	if err != nil {
		return err
	}
	if !free {
		e.What = "doubled"
		return errors.Join(errors.New("another process of this member is at work"), b.write(e))
	}
	if err := b.write(e); err != nil {
		return err
	}
	if err := os.WriteFile(os.Getenv("ORBIT_READY"), nil, 0o600); err != nil {
		return err
	}
	var done <-chan time.Time
	if *lasts > 0 {
		done = time.After(*lasts)
	}
	select {
	case <-done:
		e.What = "done"
		return b.write(e)
	case <-ctx.Done():
		time.Sleep(*stops) // as a process would that has to save something first
		e.What = "stop"
		return errors.Join(b.write(e), ctx.Err())
	}
}
