package orbit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestHistoryAgainstSlice: a history is the end of a list. What was handed out stays as it was.
func TestHistoryAgainstSlice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := history{limit: rapid.SampledFrom([]int{1, 7, historyChunk, 3*historyChunk + 1}).Draw(t, "limit")}
		var list []Change
		var rev, floor Revision
		type read struct{ got, want []Change }
		var reads []read
		commit := func(changes int) {
			rev++
			for seq := range changes {
				c := Change{Revision: rev, Seq: seq, ID: ProposalID{byte(rev), byte(rev >> 8), 1}, Do: Mark{Key: strconv.Itoa(len(list))}}
				*h.push() = c
				list = append(list, c)
			}
			if n := len(list) - h.limit; n > 0 {
				floor = list[n-1].Revision
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, r := range reads {
					require.True(t, slices.Equal(r.want, r.got))
				}
			},
			"append": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 3, 100, 300}).Draw(t, "commits") {
					commit(rapid.IntRange(1, 3).Draw(t, "changes"))
				}
			},
			"straddle": func(*rapid.T) { // a revision of which a part begins a chunk
				for h.next%historyChunk != historyChunk-2 {
					commit(1)
				}
				commit(3)
			},
			"read": func(t *rapid.T) {
				after := rev - min(rev, Revision(rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 700)).Draw(t, "back")))
				found, err := h.after(after)
				if after < floor {
					require.ErrorIs(t, err, ErrCompacted)
					return
				}
				require.NoError(t, err)
				want := slices.Clone(list[max(0, len(list)-h.limit):])
				for len(want) > 0 && want[0].Revision <= after {
					want = want[1:]
				}
				got := found.changes()
				require.Equal(t, len(got), cap(got), "an append must not write what others read")
				require.True(t, slices.Equal(want, got))
				reads = append(reads, read{got, slices.Clone(got)})
				if len(want) > 0 {
					require.Equal(t, want[0].ID, h.idAt(want[0].Revision))
				}
			},
		})
	})
}

// Readers read what they were handed while others commit; the newest changes are handed out without a copy.
func TestChangesAreShared(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{History: 3 * historyChunk}}
	first := commit(t, l, Mark{Key: "k", Value: "1"})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			seen := first
			for seen < 2000 {
				changes, err := l.Changes(t.Context(), seen)
				if err != nil { // left behind
					seen = 2000
				}
				for i := range changes {
					seen++
					if changes[i].Revision != seen || changes[i].Do != (Mark{Key: "k", Value: fmt.Sprint(uint64(seen))}) {
						t.Errorf("change %d is %+v", seen, changes[i])
					}
				}
			}
		})
	}
	for i := 2; i <= 2000; i++ {
		commit(t, l, Mark{Key: "k", Value: strconv.Itoa(i)})
	}
	readers.Wait()
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = l.Changes(t.Context(), 1999) }))
}

// The changes of a ledger name nodes. A view marks these, by their ids, also where the states have them in other slots than
// the ledger that wrote the history, and where their records say nothing new.
func TestNodesThatChangesName(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 1)}, PutNode{machine("b", 1)})
	other := &MemoryLedger{}
	commit(t, other, PutNode{machine("b", 1)}, PutNode{machine("a", 1)})
	view, mirror := View{}, &slotsOfAnother{l, other}
	from := source{ledger: mirror, owns: none}
	_, err := view.refresh(t.Context(), &from, time.Now())
	require.NoError(t, err)
	_, cursor, _ := view.Changed(0)
	last := commit(t, l, Mark{Key: "k", Value: "v"}, Submit{IDs: []CapsuleID{"c"}, Spec: &Spec{}}, Place{Capsule: "c", Node: "a"})
	require.Equal(t, last, commit(t, other, Mark{Key: "k", Value: "v"}, Submit{IDs: []CapsuleID{"c"}, Spec: &Spec{}}, Place{Capsule: "c", Node: "a"}))
	_, err = view.refresh(t.Context(), &from, time.Now())
	require.NoError(t, err)
	changed, _, _ := view.Changed(cursor)
	require.Equal(t, []int32{int32(view.state.Node("a").Index())}, slices.Compact(changed))
	_, cursor, _ = view.Changed(0)
	commit(t, l, PutNode{machine("b", 2)})
	commit(t, other, Mark{Key: "k", Value: "v"})
	_, err = view.refresh(t.Context(), &from, time.Now())
	require.NoError(t, err)
	changed, _, _ = view.Changed(cursor)
	require.Equal(t, []int32{int32(view.state.Node("b").Index())}, slices.Compact(changed))
}

// slotsOfAnother has the changes of one ledger and the states of another.
type slotsOfAnother struct {
	*MemoryLedger
	states *MemoryLedger
}

func (l *slotsOfAnother) Snapshot(ctx context.Context) (*State, error) { return l.states.Snapshot(ctx) }
