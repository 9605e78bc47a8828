package navtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// The rule: Plan does not write to its arguments: neither to the slice of pending capsules, nor to the capsules, specs,
// nodes and gangs, which belong to the ledger.
//
// How: the state is dumped before and after Plan, and the dumps are compared; Verify recounts what dumps leave out. A
// write that is undone before Plan returns can only be found by the race detector.

func checkReadOnly(t *trial) {
	t.scripts(func(w *world) {
		var before []byte
		var given, kept []*orbit.Capsule
		w.ask = func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
			before = dump(view.State())
			given, kept = pending, slices.Clone(pending)
			return w.under.Plan(ctx, view, pending)
		}
		w.during = func(c *call) error {
			if !slices.Equal(given, kept) {
				return c.fault("the slice of pending capsules has been written to; clone it")
			}
			if err := cmp.Or(changed(before, dump(c.state)), c.state.Verify()); err != nil {
				return c.fault("Plan has written to what is the ledger's: %w", err)
			}
			return nil
		}
	}, nil)
}

// dump returns the dump of a state.
func dump(s *orbit.State) []byte {
	var b bytes.Buffer
	if err := s.Dump(&b); err != nil {
		fmt.Fprintf(&b, "\ncannot be dumped: %v", err)
	}
	return b.Bytes()
}

// changed returns an error with the first line in which two dumps differ.
func changed(before, after []byte) error {
	if bytes.Equal(before, after) {
		return nil
	}
	was, is := bytes.Split(before, []byte("\n")), bytes.Split(after, []byte("\n"))
	for i := range min(len(was), len(is)) {
		if !bytes.Equal(was[i], is[i]) {
			return fmt.Errorf("was\n\t%s\nand is\n\t%s", was[i], is[i])
		}
	}
	return fmt.Errorf("it had %d records and has %d", len(was), len(is))
}
