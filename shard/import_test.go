package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
)

func TestImportPinsInOneProposal(t *testing.T) {
	s := newStage(t)
	gang := &orbit.Gang{ID: "g/1", Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: ids("m", 2)}}}
	rev, err := Import(t.Context(), s.ledger,
		Submission{Submit: orbit.Submit{IDs: ids("free", 2), Spec: cpu(1)}},
		Submission{Submit: orbit.Submit{IDs: ids("x/", 2), Spec: cpu(1)}, Schedulers: []string{"a", "a", ""}},
		Submission{Submit: orbit.Submit{Gang: gang, Owner: "b"}},
	)
	require.NoError(t, err)
	require.Equal(t, orbit.Revision(1), rev, "one proposal")
	require.Empty(t, s.owner("free001"))
	require.Equal(t, "a", s.owner("x/001"))
	require.Equal(t, "a", s.mark("pinned/x/001"))
	require.Equal(t, "b", s.owner("m001"))
	require.Equal(t, "b", s.mark("pinned-gang/g/1"))
	require.Empty(t, s.mark("pinned/free000"))
	require.Empty(t, s.mark("pinned/m000"))
}

func TestImportRefusesContradictions(t *testing.T) {
	one := func(ids []orbit.CapsuleID, names ...string) Submission {
		return Submission{Submit: orbit.Submit{IDs: ids, Spec: cpu(1)}, Schedulers: names}
	}
	owned := one(ids("x", 1), "a")
	owned.Owner = "b"
	gang := Submission{Submit: orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Spec: cpu(1), Members: ids("x", 1)}}}}, Schedulers: []string{"b"}}
	gangTwice := gang
	gangTwice.Schedulers = []string{"b", "c"}
	for name, bad := range map[string][]Submission{
		"two at once":          {one(ids("x", 1), "a", "b")},
		"and the owner":        {owned},
		"two submissions":      {one(ids("x", 1), "a"), one(ids("x", 1), "b")},
		"a gang and a capsule": {one(ids("x", 1), "a"), gang},
		"a gang":               {gangTwice},
		"with none between":    {one(ids("x", 1), "a"), one(ids("x", 1)), one(ids("x", 1), "b")},
		"none first":           {one(ids("x", 1)), one(ids("x", 1), "a"), one(ids("x", 1), "b")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			_, err := Import(t.Context(), s.ledger, append([]Submission{one(ids("good", 1), "a")}, bad...)...)
			require.ErrorIs(t, err, ErrContradiction)
			var what *Error
			require.ErrorAs(t, err, &what)
			require.Len(t, what.Schedulers, 2)
			require.True(t, what.Capsule == "x000" || what.Gang == "g")
			require.Contains(t, err.Error(), "Nothing was submitted")
			require.Zero(t, s.state().Revision(), "nothing was submitted")
		})
	}
	s := newStage(t)
	_, err := Import(t.Context(), s.ledger, one(ids("x", 1), "a"), one(ids("x", 1), "a"))
	require.ErrorIs(t, err, orbit.ErrInvalid, "agreement, twice")
}

func TestImportOfLongIDs(t *testing.T) {
	s := newStage(t)
	long := orbit.CapsuleID(strings.Repeat("x", 253))
	_, err := Import(t.Context(), s.ledger, Submission{Submit: orbit.Submit{IDs: []orbit.CapsuleID{long}, Spec: cpu(1)}, Schedulers: []string{"a"}})
	require.ErrorIs(t, err, ErrKey)
	require.Zero(t, s.state().Revision())
	_, err = Import(t.Context(), s.ledger, Submission{Submit: orbit.Submit{IDs: []orbit.CapsuleID{long}, Spec: cpu(1)}})
	require.NoError(t, err, "only what is pinned needs a mark")
}

// flaky is a ledger whose answers the test decides.
type flaky struct {
	orbit.Ledger
	// Each call of Propose takes the next; nil: the ledger's own answer. The first half of the commits whose answer is
	// lost have been applied.
	errs []error
	sent int
}

func (f *flaky) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	f.sent++
	if len(f.errs) == 0 {
		return f.Ledger.Propose(ctx, p)
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	if err == nil || errors.Is(err, orbit.ErrUnknown) {
		rev, own := f.Ledger.Propose(ctx, p)
		if err == nil {
			return rev, own
		}
	}
	return 0, err
}

func TestImportInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		f := &flaky{Ledger: s.ledger, errs: []error{orbit.ErrUnknown, orbit.ErrUnknown}}
		rev, err := Import(t.Context(), f, Submission{Submit: orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)}, Schedulers: []string{"a"}})
		require.NoError(t, err)
		require.Equal(t, orbit.Revision(1), rev, "it had one effect")
		require.Equal(t, 3, f.sent)
		f.errs = []error{orbit.ErrUnavailable}
		_, err = Import(t.Context(), f, Submission{Submit: orbit.Submit{IDs: ids("y", 1), Spec: cpu(1)}})
		require.ErrorIs(t, err, orbit.ErrUnavailable)
	})
}

// An unknown outcome stays unknown if the proposal cannot be sent again, because the ledger is unavailable or the
// context has ended.
func TestWhatMayHaveBeenImportedIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		f := &flaky{Ledger: s.ledger, errs: []error{orbit.ErrUnknown, orbit.ErrUnavailable}}
		_, err := Import(t.Context(), f, Submission{Submit: orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)}})
		require.NoError(t, err, "it is sent again until that is known")
		for name, send := range map[string]func(context.Context) error{
			"Import": func(ctx context.Context) error {
				_, err := Import(ctx, f, Submission{Submit: orbit.Submit{IDs: ids("y", 1), Spec: cpu(1)}})
				return err
			},
			"Pin": func(ctx context.Context) error {
				_, err := Pin(ctx, f, "a", "x000")
				return err
			},
		} {
			f.errs = []error{orbit.ErrUnknown}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			err := send(ctx)
			require.ErrorIs(t, err, orbit.ErrUnknown, name)
			require.NotErrorIs(t, err, orbit.ErrUnavailable, name)
		}
	})
}

// A capsule that is pinned to one scheduler cannot be pinned to another in any way, and a refused attempt changes
// nothing. A capsule without a pin is assigned to the scheduler, and so is its gang.
func TestPinsDoNotContradict(t *testing.T) {
	s := newStage(t)
	gang := &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: ids("m", 2)}}}
	_, err := Import(t.Context(), s.ledger,
		Submission{Submit: orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)}, Schedulers: []string{"a"}},
		Submission{Submit: orbit.Submit{IDs: ids("free", 2), Spec: cpu(1)}},
		Submission{Submit: orbit.Submit{Gang: gang}},
	)
	require.NoError(t, err)
	refused := func(_ orbit.Revision, err error) {
		t.Helper()
		var what *Error
		require.ErrorAs(t, err, &what)
		require.ErrorIs(t, err, ErrContradiction)
		require.Equal(t, []string{"a", "b"}, what.Schedulers)
		require.Equal(t, "a", s.owner("x000"))
		require.Equal(t, "a", s.mark("pinned/x000"))
		require.Empty(t, s.owner("free000"))
		require.Equal(t, orbit.Revision(1), s.state().Revision())
	}
	refused(Pin(t.Context(), s.ledger, "b", "free000", "x000"))
	refused(Import(t.Context(), s.ledger, Submission{Submit: orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)}, Schedulers: []string{"b"}}))
	for _, bad := range [][]orbit.CapsuleID{{"unknown"}, {""}, {}} {
		_, err := Pin(t.Context(), s.ledger, "b", bad...)
		require.ErrorIs(t, err, orbit.ErrInvalid)
	}
	_, err = Pin(t.Context(), s.ledger, "", "free000")
	require.ErrorIs(t, err, orbit.ErrInvalid)
	_, err = Pin(t.Context(), s.ledger, "a", "x000")
	require.NoError(t, err, "it is so already")
	require.Equal(t, orbit.Revision(1), s.state().Revision())

	_, err = Pin(t.Context(), s.ledger, "b", "free000", "m001", "m000", "free000")
	require.NoError(t, err)
	require.Equal(t, []string{"b", "b", "b", ""}, []string{s.owner("free000"), s.owner("m000"), s.owner("m001"), s.owner("free001")})
	require.Equal(t, []string{"b", "b", "", ""}, []string{s.mark("pinned/free000"), s.mark("pinned-gang/g"), s.mark("pinned/m000"), s.mark("pinned/free001")})
	_, err = Pin(t.Context(), s.ledger, "a", "m000")
	require.ErrorIs(t, err, ErrContradiction)
	for id, owner := range map[orbit.CapsuleID]string{"x000": "a", "m000": "b"} {
		_, err = s.ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Assign{Capsule: id, From: owner, Owner: "c"}}})
		require.ErrorIs(t, err, orbit.ErrConflict, "the ledger knows the pin of %s", id)
		require.Equal(t, owner, s.owner(id))
	}
}

// However many callers pin one capsule at once, and whatever the ledger answers, exactly one of them succeeds.
func TestPinsRace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			s := newStage(rt)
			s.do(orbit.Submit{IDs: ids("x", 1), Spec: cpu(1)})
			runs := rapid.Bool().Draw(rt, "runs") // then it keeps its owner, and only the pin changes
			if runs {
				s.do(node("n", 1), orbit.Place{Capsule: "x000", Node: "n"})
			}
			chance := rapid.SampledFrom([]float64{0, 0.2})
			faults := &ledgertest.Faults{Seed: rapid.Uint64().Draw(rt, "seed"), Conflict: chance.Draw(rt, "conflict"), Lost: chance.Draw(rt, "lost"), Applied: chance.Draw(rt, "applied"), Delay: 0.5}
			ledger, errs := faults.Around(s.ledger), make([]error, 4)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { _, errs[i] = Pin(context.Background(), ledger, fmt.Sprint("s", i), "x000") })
			}
			all.Wait()
			var won []string
			for i, err := range errs {
				if err == nil {
					won = append(won, fmt.Sprint("s", i))
				} else {
					require.ErrorIs(rt, err, ErrContradiction)
				}
			}
			require.Equal(rt, []string{s.mark("pinned/x000")}, won)
			require.True(rt, runs || s.owner("x000") == won[0])
		})
	})
}
