package diskledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/logledger"
)

var ctx = context.Background()

// step is one step of a random history. It is drawn before anything runs.
type step struct {
	kind string
	n    int
}

// drawSteps draws a history.
func drawSteps(t *rapid.T, most int) []step {
	kinds := []string{"submit", "submit", "place", "place", "place", "final", "mark", "large", "hold", "batch", "refused", "checkpoint", "reopen"}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.IntRange(0, 40).Draw(t, "n")}
	}), 1, most).Draw(t, "steps")
}

// proposals returns what a step proposes. Names are made of the number of the step, so that every history is valid.
func (s step) proposals(at int, state *orbit.State) []orbit.Proposal {
	id := orbit.CapsuleID(fmt.Sprint("c", at))
	spec := &orbit.Spec{Module: fmt.Sprint("m", s.n%3), Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
	var do []orbit.Commitment
	switch s.kind {
	case "submit":
		ids := []orbit.CapsuleID{id}
		for i := range s.n * 10 { // beyond a block of the disk
			ids = append(ids, orbit.CapsuleID(fmt.Sprint(id, "-", i)))
		}
		do = []orbit.Commitment{orbit.Submit{IDs: ids, Spec: spec}}
	case "place":
		for c := range state.Capsules() {
			if c.Pending() && len(do) < s.n%4+1 {
				do = append(do, orbit.Place{Capsule: c.ID, Node: "n"})
			}
		}
	case "final":
		for c := range state.Capsules() {
			if c.Placed() && len(do) < s.n%3+1 {
				do = append(do, orbit.Release{Capsule: c.ID, From: c.Node, Final: true})
			}
		}
	case "hold":
		do = []orbit.Commitment{orbit.Hold{ID: orbit.HoldID(id), Node: "n", Room: orbit.Resources{orbit.CPU: 1}, Ends: time.Unix(1, 0)}}
	case "large":
		for i := range s.n {
			do = append(do, mark(fmt.Sprint(at, "-", i), 2000))
		}
	case "batch":
		for i := range s.n {
			do = append(do, mark(fmt.Sprint(at, "-", i), i))
		}
		var out []orbit.Proposal
		for _, c := range do {
			out = append(out, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{c}})
		}
		return out
	case "refused":
		do = []orbit.Commitment{orbit.Place{Capsule: "nobody", Node: "n"}}
	case "mark":
		do = []orbit.Commitment{mark(fmt.Sprint(at), s.n)}
	}
	if len(do) == 0 {
		return nil
	}
	return []orbit.Proposal{{ID: orbit.NewProposalID(), Do: do}}
}

// mark is a mark with a value of some length.
func mark(key string, n int) orbit.Commitment {
	return orbit.Mark{Key: key, Value: strings.Repeat("v", n+1)}
}

// node is the node of the histories.
func node() orbit.Proposal {
	return orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 1000}}}}}
}

// play runs a history, one proposal after another, and calls done after each call that was answered. It returns the ledger.
func play(t require.TestingT, fs vfs.FS, o diskledger.Options, steps []step, done func(*orbit.State)) *diskledger.Ledger {
	o.FS = fs
	l, err := diskledger.Open("ledger", o)
	require.NoError(t, err)
	tell := func() {
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		done(s)
	}
	tell()
	_, err = l.Propose(ctx, node())
	require.NoError(t, err)
	tell()
	for at, s := range steps {
		switch s.kind {
		case "checkpoint":
			require.NoError(t, l.Checkpoint(ctx))
		case "reopen":
			require.NoError(t, l.Close())
			l, err = diskledger.Open("ledger", o)
			require.NoError(t, err)
		default:
			state, err := l.Snapshot(ctx)
			require.NoError(t, err)
			for _, p := range s.proposals(at, state) {
				_, _ = l.Propose(ctx, p)
				tell()
			}
		}
		tell()
	}
	return l
}

// inspect reads a folder that no process has open.
func inspect(fs vfs.FS, dir string, visit func(logledger.Part) error) (logledger.Found, error) {
	log, err := diskledger.OpenLog(dir, diskledger.LogOptions{FS: fs, ReadOnly: true})
	if err != nil {
		return logledger.Found{}, err
	}
	found, err := logledger.Inspect(ctx, log, visit)
	return found, errors.Join(err, log.Close())
}

// closed closes a ledger.
func closed(t testing.TB, l *diskledger.Ledger) {
	t.Helper()
	require.NoError(t, l.Close())
}
