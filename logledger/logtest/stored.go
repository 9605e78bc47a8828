package logtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// Stored makes and checks what tests keep as examples of a stored log, so that each later release reads what an earlier one has
// stored.
type Stored struct {
	// Open opens a handle of the log.
	Open func(t testing.TB) logledger.Poster
	// Large is how many bytes an entry and a post have at least that the store keeps in parts.
	Large int
}

// Marks that the posts of dead ledgers set.
const (
	smallPost = "a small post"
	largePost = "a large post"
)

// Make fills an empty log with one of everything that a log can hold: a checkpoint of a state; entries of several ledgers, of
// which some settle posts, and one is large; a small and a large post of ledgers that died before an entry settled them.
func (s Stored) Make(t testing.TB, state *orbit.State) {
	log := s.Open(t)
	must(t, log.SaveCheckpoint(t.Context(), 0, func(w io.Writer) error { return logledger.WriteCheckpoint(w, state) }))
	ledgers := []*logledger.Ledger{s.ledger(t, s.Open(t)), s.ledger(t, s.Open(t))}
	must(t, commit(t.Context(), ledgers...))
	must(t, ledgers[0].Checkpoint(t.Context()))
	settled, writers := false, map[logledger.WriterID]bool{}
	for !settled || len(writers) <= len(ledgers) { // the checkpoint has no writer
		must(t, commit(t.Context(), ledgers...))
		_, err := logledger.Inspect(t.Context(), log, func(p logledger.Part) error {
			writers[p.Entry.Writer] = true
			settled = settled || len(p.Entry.Settled) > 0
			return nil
		})
		must(t, err)
	}
	_, err := ledgers[0].Propose(t.Context(), orbit.Proposal{ID: orbit.ProposalID{1}, Do: noise("a large entry", s.Large)})
	must(t, err)
	posts := []logledger.Post{
		s.dead(t, ledgers[0], []orbit.Commitment{orbit.Mark{Key: smallPost, Value: "v"}}), s.dead(t, ledgers[0], noise(largePost, s.Large)),
	}
	for _, l := range ledgers {
		must(t, l.Close())
	}
	for _, post := range posts {
		must(t, log.Post(t.Context(), post))
	}
}

// Check checks a log that Make has filled: it has everything, its state has the given text, and a ledger on it commits what the
// dead had posted, and goes on.
func (s Stored) Check(t testing.TB, want string) {
	log, writers, settled, large := s.Open(t), map[logledger.WriterID]bool{}, 0, 0
	found, err := logledger.Inspect(t.Context(), log, func(p logledger.Part) error {
		writers[p.Entry.Writer] = true
		settled += len(p.Entry.Settled)
		large = max(large, len(p.Data))
		return nil
	})
	must(t, err)
	switch {
	case textOf(t, found.State) != want:
		t.Fatal("the state is not the one that was stored")
	case found.Posts != 2, len(writers) <= 2, settled == 0, large <= s.Large: // the checkpoint has no writer
		t.Fatalf("%d posts, %d writers, %d settled posts, an entry of %d bytes: make it anew", found.Posts, len(writers)-1, settled, large)
	}
	l := s.ledger(t, s.Open(t)) // closes its handle
	until := time.Now().Add(20 * time.Second)
	for isSettled := false; !isSettled; {
		if time.Now().After(until) {
			t.Fatal("nobody settles the posts of the dead")
		}
		must(t, commit(t.Context(), l))
		state, err := l.Snapshot(t.Context())
		must(t, err)
		small, _ := state.Mark(smallPost)
		large, _ := state.Mark(largePost + " 0")
		isSettled = small != "" && large != ""
	}
	must(t, l.Close())
}

// ledger opens a ledger that makes no checkpoints by itself.
func (s Stored) ledger(t testing.TB, log logledger.Log) *logledger.Ledger {
	l, err := logledger.Open(t.Context(), log, logledger.Options{CheckpointEvery: 1 << 30, OnError: func(error) {}})
	must(t, err)
	return l
}

// dead returns the post of a ledger that died when it had made it. Living commits meanwhile, so that the other one posts.
func (s Stored) dead(t testing.TB, living *logledger.Ledger, do []orbit.Commitment) logledger.Post {
	log := &dying{Poster: s.Open(t), posted: make(chan logledger.Post, 1)}
	l := s.ledger(t, log)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for commit(ctx, living) == nil { // until the context ends
		}
	})
	wg.Go(func() { _, _ = l.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: do}) }) // it is not answered
	post := <-log.posted
	cancel()
	wg.Wait()
	_ = l.Close() // its log has failed
	return post
}

// dying is a log that can only read, and that keeps the first post.
type dying struct {
	logledger.Poster
	posted chan logledger.Post
}

// Append implements logledger.Log.
func (d *dying) Append(context.Context, logledger.Append) ([]logledger.Post, error) {
	return nil, logledger.ErrTaken
}

// Post implements logledger.Poster.
func (d *dying) Post(_ context.Context, p logledger.Post) error {
	select {
	case d.posted <- p:
	default:
	}
	return errors.New("logtest: dead")
}

// commit commits through each ledger at the same time.
func commit(ctx context.Context, ledgers ...*logledger.Ledger) error {
	var wg sync.WaitGroup
	errs := make([]error, len(ledgers))
	for i, l := range ledgers {
		wg.Go(func() {
			_, errs[i] = l.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: fmt.Sprint("ledger ", i), Value: "v"}}})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// noise returns marks with values that cannot be compressed to less than a number of bytes.
func noise(key string, size int) (do []orbit.Commitment) {
	const most = 4096 // bytes of a value
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; n*most*3/4 <= size+size/8; n++ {
		value := make([]byte, most)
		for i := range value {
			value[i] = byte('0' + rng.IntN(64))
		}
		do = append(do, orbit.Mark{Key: fmt.Sprint(key, " ", n), Value: string(value)})
	}
	return do
}

// must ends the test after an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// textOf returns a state as text.
func textOf(t testing.TB, s *orbit.State) string {
	var out strings.Builder
	must(t, s.Dump(&out))
	return out.String()
}
