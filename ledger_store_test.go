package orbit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestHistoryIsTruncated: the history is the list of its changes, also after some at its end were dropped. What was read
// before stays as it was read.
func TestHistoryIsTruncated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := history{limit: rapid.IntRange(1, 3*historyChunk).Draw(t, "limit")}
		var model []Change
		floor := Revision(0)
		type read struct {
			span span
			want []Change
		}
		var reads []read
		newest := func() Revision {
			if len(model) == 0 {
				return floor
			}
			return model[len(model)-1].Revision
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				for range rapid.IntRange(1, historyChunk).Draw(t, "commits") {
					rev := newest() + 1
					for seq := range rapid.IntRange(1, 3).Draw(t, "changes") {
						c := Change{Revision: rev, Seq: seq, Do: Mark{Key: fmt.Sprint(len(reads))}}
						*h.push() = c
						model = append(model, c)
					}
				}
				if n := len(model) - h.limit; n > 0 {
					floor = model[n-1].Revision
					model = slices.Clone(model[n:])
				}
			case 1:
				rev := floor + Revision(rapid.Uint64Range(0, uint64(newest()-floor)).Draw(t, "to"))
				h.truncate(rev)
				model = slices.DeleteFunc(slices.Clone(model), func(c Change) bool { return c.Revision > rev })
			case 2:
				after := floor + Revision(rapid.Uint64Range(0, uint64(newest()-floor)).Draw(t, "after"))
				got, err := h.after(after)
				require.NoError(t, err)
				want := slices.DeleteFunc(slices.Clone(model), func(c Change) bool { return c.Revision <= after })
				reads = append(reads, read{got, want})
				upTo := after + Revision(rapid.Uint64Range(0, uint64(newest()-after)).Draw(t, "up to"))
				want = slices.DeleteFunc(slices.Clone(want), func(c Change) bool { return c.Revision > upTo })
				reads = append(reads, read{got.upTo(upTo), want})
			}
			for _, r := range reads {
				require.True(t, slices.Equal(r.want, r.span.changes()), "want %d changes, read %d", len(r.want), len(r.span.changes()))
			}
		}
	})
}

// TestStoredLedger: a ledger that follows another by Apply, and takes back by Reset what it has judged in between, has the
// state and the history of the other.
func TestStoredLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		main, mirror := &MemoryLedger{}, &MemoryLedger{}
		key := rapid.StringMatching(`[a-c]`)
		marks := func() (batch []Proposal) {
			for range rapid.IntRange(1, 90).Draw(t, "proposals") {
				batch = append(batch, Proposal{ID: NewProposalID(), Do: []Commitment{Mark{Key: key.Draw(t, "key"), Value: key.Draw(t, "value")}},
					If: []Precondition{MarkAt{Key: key.Draw(t, "bet"), Revision: Revision(rapid.Uint64Range(0, 3).Draw(t, "at"))}}})
			}
			return batch
		}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			before, err := mirror.Snapshot(ctx)
			require.NoError(t, err)
			rev := before.Revision()
			out, changes := main.Commit(marks())
			made := 0
			for _, o := range out {
				if o.Err == nil {
					made++
				}
			}
			require.Len(t, changes, made)
			mirror.Commit(marks())
			mirror.Reset(before)
			require.NoError(t, mirror.Apply(changes))
			want, err := main.Changes(ctx, rev)
			require.NoError(t, err)
			got, err := mirror.Changes(ctx, rev)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		a, err := main.Snapshot(ctx)
		require.NoError(t, err)
		b, err := mirror.Snapshot(ctx)
		require.NoError(t, err)
		require.Equal(t, dumpOf(t, a), dumpOf(t, b))
	})
}

// TestResetBesideReaders: readers of the history see only what was never taken back, whatever is judged and taken back
// meanwhile.
func TestResetBesideReaders(t *testing.T) {
	l := &MemoryLedger{}
	ctx, cancel := context.WithCancel(t.Context())
	mark := func(value string) []Proposal {
		return []Proposal{{Do: []Commitment{Mark{Key: "k", Value: value}}}, {Do: []Commitment{Mark{Key: "k", Value: value}}}}
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			shown := Revision(0)
			for ctx.Err() == nil {
				s, _ := l.Snapshot(t.Context())
				upTo := s.Revision() / 4 * 4
				changes, err := l.Between(shown, upTo)
				if errors.Is(err, ErrCompacted) {
					shown = upTo
					continue
				}
				for i, c := range changes {
					if c.Revision != shown+Revision(i)+1 {
						t.Errorf("change %d after %d has revision %d", i, shown, c.Revision)
						return
					}
				}
				shown = max(shown, upTo)
			}
		})
	}
	for range 2000 {
		l.Commit(mark("kept"))
		l.Commit(mark("kept"))
		s, _ := l.Snapshot(t.Context())
		l.Commit(mark("taken back"))
		l.Reset(s)
	}
	cancel()
	wg.Wait()
}
