// Orbitlog prints, verifies, compacts and copies the log of a ledger, in whatever store it is.
//
//	orbitlog print LOG            the newest checkpoint and each entry after it, as a comment, and each change as a line of JSON
//	orbitlog state LOG            the state after the newest entry, as State.Dump writes it
//	orbitlog verify LOG           reads everything and recounts the state; the last line is "verify: ok"
//	orbitlog compact LOG          writes a checkpoint of the newest state and removes what it includes
//	orbitlog copy [-redo] FROM TO copies a ledger to an empty log; -redo begins a copy anew that was interrupted
//
// A LOG is one of
//
//	file:DIR                      the folder of a diskledger; no process may have it open
//	etcd:URL[,URL...][/PREFIX]    a prefix of an etcd; default: orbit. Certificates, user and password are taken from the
//	                              variables of etcdctl: ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER, ETCDCTL_PASSWORD
//	postgres://...                the URL of a Postgres database; with ?schema=... and ?name=... of the ledger, default: orbit
//
// Only compact and copy write, copy only to TO. Before copy, close all ledgers on both logs, so that nothing is committed
// that the copy lacks. An interrupted copy leaves a log that no ledger opens.
//
// Results go to standard output; progress and errors go to standard error. The status is 0: done, and what was read is sound; 1:
// not done, and the error says why (the store cannot be reached, the log is in use, is not there or is not empty); 2: wrong
// arguments; 3: the log is damaged, or a copy to it was not finished.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/pgledger"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ticker := time.NewTicker(2 * time.Second)
	out := bufio.NewWriter(os.Stdout)
	c := &command{out: out, problems: os.Stderr, ticks: ticker.C, env: os.Getenv}
	status := c.run(ctx, os.Args[1:])
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "orbitlog: write the output:", err)
		status = max(status, notDone)
	}
	stop()
	os.Exit(status)
}

const usage = `usage: orbitlog print|state|verify|compact LOG
       orbitlog copy [-redo] FROM TO
A LOG is file:DIR, etcd:URL[,URL...][/PREFIX] or postgres://...[?schema=S&name=N].`

// The statuses to exit with.
const (
	done    = 0
	notDone = 1
	misused = 2
	unsound = 3
)

// command is one call of the program.
type command struct {
	out, problems io.Writer
	// ticks says when progress is shown.
	ticks <-chan time.Time
	env   func(string) string
	redo  bool
}

// run does what the arguments say, and returns the status.
func (c *command) run(ctx context.Context, args []string) int {
	do, logs, err := c.parse(args)
	if err != nil {
		fmt.Fprintf(c.problems, "orbitlog: %v\n%s\n", err, usage)
		return misused
	}
	p := start(c.problems, c.ticks)
	err = do(ctx, p, logs)
	p.stop()
	if err == nil {
		return done
	}
	fmt.Fprintln(c.problems, "orbitlog:", err)
	if next := advice(err); next != "" {
		fmt.Fprintln(c.problems, "orbitlog:", next)
	}
	if errors.Is(err, logledger.ErrCorrupt) || errors.Is(err, logledger.ErrUnfinished) {
		return unsound
	}
	return notDone
}

// parse returns what to do, and with which logs.
func (c *command) parse(args []string) (do func(context.Context, *progress, []address) error, logs []address, err error) {
	if len(args) == 0 {
		return nil, nil, errors.New("say what to do")
	}
	names := args[1:]
	n := 1
	switch args[0] {
	case "print":
		do = c.print
	case "state":
		do = c.state
	case "verify":
		do = c.verify
	case "compact":
		do = c.compact
	case "copy":
		do, n = c.copy, 2
		flags := flag.NewFlagSet("copy", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		flags.BoolVar(&c.redo, "redo", false, "")
		if err := flags.Parse(names); err != nil {
			return nil, nil, err
		}
		names = flags.Args()
	default:
		return nil, nil, fmt.Errorf("there is no command %q", args[0])
	}
	if len(names) != n {
		return nil, nil, fmt.Errorf("%s takes %d, and %d are given", args[0], n, len(names))
	}
	for _, name := range names {
		a, err := parse(name)
		if err != nil {
			return nil, nil, err
		}
		logs = append(logs, a)
	}
	return do, logs, nil
}

// advice returns what to do after an error whose text does not say it; "": nothing.
func advice(err error) string {
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	switch {
	case is(context.Canceled):
		return "interrupted; run it again"
	case is(diskledger.ErrLocked):
		return "close the process that has the folder open, and try again"
	case is(diskledger.ErrNoLog, etcdledger.ErrNoLog, pgledger.ErrNoLog, logledger.ErrNoCheckpoint):
		return "there is no ledger; is the name of the log right?"
	case is(logledger.ErrTaken):
		return "see that nobody else uses the log that is copied to, and run copy -redo"
	case is(logledger.ErrUnfinished):
		return "copy -redo FROM TO makes it whole; first see that no other copy to it is under way"
	case is(pgledger.ErrSetup):
		return ""
	case is(orbit.ErrUnavailable):
		return "see that the store runs, and that address, user and certificates are right; then try again"
	}
	return ""
}
