// Orbitdisk prints, verifies and compacts the folder of a ledger that no process has open.
//
//	orbitdisk print DIR      the files, and each change since the checkpoint as a line of JSON
//	orbitdisk state DIR      the state after the last change, as State.Dump writes it
//	orbitdisk verify DIR     reads everything and recounts the state; the last line is "verify: ok"
//	orbitdisk compact DIR    writes a checkpoint of the state and removes the files before it
//
// A damaged file ends all of them with status 1 and an error that names the file and the place. Only compact changes
// the folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/orbitsched/orbit/diskledger"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the status to exit with: 2 for wrong arguments, 1 for any other error.
func run(args []string, out, problems io.Writer) int {
	commands := map[string]func(dir string, out io.Writer) error{"print": show, "state": state, "verify": verify, "compact": compact}
	if len(args) != 2 || commands[args[0]] == nil {
		fmt.Fprintln(problems, "usage: orbitdisk print|state|verify|compact DIR")
		return 2
	}
	if err := commands[args[0]](args[1], out); err != nil {
		fmt.Fprintln(problems, "orbitdisk:", err)
		return 1
	}
	return 0
}

// show prints the files and the changes.
func show(dir string, out io.Writer) error {
	_, err := diskledger.Inspect(nil, dir, func(e diskledger.Entry) error {
		name := filepath.Base(e.File)
		if e.Changes == nil {
			_, err := fmt.Fprintf(out, "# %s: %d bytes, from entry %d\n", name, e.Bytes, e.Index)
			return err
		}
		_, err := fmt.Fprintf(out, "# %s at byte %d\n", name, e.Offset)
		for _, c := range e.Changes {
			line, failed := c.MarshalJSON()
			if err = errors.Join(err, failed); err == nil {
				_, err = fmt.Fprintf(out, "%s\n", line)
			}
		}
		return err
	})
	return err
}

// state prints the state.
func state(dir string, out io.Writer) error {
	found, err := diskledger.Inspect(nil, dir, nil)
	if err != nil {
		return err
	}
	return found.State.Dump(out)
}

// verify reads everything.
func verify(dir string, out io.Writer) error {
	found, err := diskledger.Inspect(nil, dir, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "revision %d, %d nodes, %d capsules; %d changes behind the checkpoint; %d bytes of an unfinished write\nverify: ok\n",
		found.State.Revision(), found.State.NodeCount(), found.State.CapsuleCount(), found.Changes, found.Cut)
	return err
}

// compact makes a checkpoint.
func compact(dir string, out io.Writer) error {
	if _, err := diskledger.Inspect(nil, dir, nil); err != nil { // Open would make a ledger where there is none
		return err
	}
	l, err := diskledger.Open(dir, diskledger.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(l.Checkpoint(context.Background()), l.Close()); err != nil {
		return err
	}
	return verify(dir, out)
}
