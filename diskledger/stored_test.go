package diskledger_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
)

// store writes the files of testdata anew. It is for a new version of the format only: the old files must stay.
var store = flag.Bool("store", false, "write testdata/v1 anew")

// everything commits each kind of commitment at least once, and leaves a state with each kind of record.
func everything(t *testing.T, l *diskledger.Ledger, n int) {
	serial := byte(0)
	propose := func(do ...orbit.Commitment) {
		serial++
		_, err := l.Propose(ctx, orbit.Proposal{ID: orbit.ProposalID{byte(n), serial}, Do: do})
		require.NoError(t, err)
	}
	placed := func(id orbit.CapsuleID) *orbit.Capsule {
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		return s.Capsule(id)
	}
	name := func(s string) string { return fmt.Sprint(s, n) }
	node := func(s string) orbit.NodeID { return orbit.NodeID(name(s)) }
	capsule := func(s string) orbit.CapsuleID { return orbit.CapsuleID(name(s)) }
	cpu := func(n int64) orbit.Envelope { return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: n}} }
	rich := &orbit.Spec{Module: "rich", Priority: 3, Envelope: cpu(2), Devices: orbit.DeviceRequest{Count: 1, Milli: 300},
		Group: "g", Groups: []string{"h"}, Movable: true, RunsAtMost: time.Hour}
	low, high := &orbit.Spec{Module: "low", Envelope: cpu(10), Movable: true}, &orbit.Spec{Module: "high", Priority: 9, Envelope: cpu(10)}
	propose(orbit.PutNode{Node: orbit.Node{ID: node("a"), Capacity: orbit.Resources{orbit.CPU: 10}, Confirms: true,
		Labels: map[string]string{"rack": "r1"}, Devices: orbit.Devices{Model: "gpu", Count: 2}}},
		orbit.PutNode{Node: orbit.Node{ID: node("b"), Capacity: orbit.Resources{orbit.CPU: 10}}},
		orbit.PutNode{Node: orbit.Node{ID: node("c"), Capacity: orbit.Resources{orbit.CPU: 10}}},
		orbit.PutNode{Node: orbit.Node{ID: node("gone"), Capacity: orbit.Resources{orbit.CPU: 1}}})
	propose(orbit.RemoveNode{Node: node("gone")})
	propose(orbit.PutBudget{Budget: orbit.Budget{ID: orbit.BudgetID(name("kept")), Module: "rich", Expected: 2, Missing: 2}},
		orbit.PutBudget{Budget: orbit.Budget{ID: orbit.BudgetID(name("ended")), Group: "g", Expected: 1, MissingPercent: 50}})
	propose(orbit.RemoveBudget{Budget: orbit.BudgetID(name("ended"))})
	propose(orbit.Submit{IDs: []orbit.CapsuleID{capsule("x"), capsule("y"), capsule("over")}, Spec: rich, Owner: "me", At: 5, Labels: map[string]string{"team": "é<"}},
		orbit.Submit{IDs: []orbit.CapsuleID{capsule("low")}, Spec: low}, orbit.Submit{IDs: []orbit.CapsuleID{capsule("high"), capsule("waits")}, Spec: high},
		orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(name("gang")), Levels: []string{"rack"}, Roles: []orbit.Role{
			{Name: "worker", Spec: &orbit.Spec{Envelope: cpu(1), Class: orbit.GangClass}, Members: []orbit.CapsuleID{capsule("w0"), capsule("w1")}, Min: 1}}}})
	propose(orbit.Assign{Capsule: capsule("y"), From: "me", Owner: "you"}, orbit.Mark{Key: name("mark"), Value: "a\nb"})
	propose(orbit.Place{Capsule: capsule("x"), Node: node("a"), Devices: 1, Note: "warm", At: 6}, orbit.Place{Capsule: capsule("over"), Node: node("a"), Devices: 2})
	propose(orbit.Confirm{Capsule: capsule("x"), Since: placed(capsule("x")).PlacedAt, Begun: true},
		orbit.Confirm{Capsule: capsule("over"), Since: placed(capsule("over")).PlacedAt, Begun: true})
	propose(orbit.Release{Capsule: capsule("over"), Final: true}) // leaves remains
	propose(orbit.Place{Capsule: capsule("low"), Node: node("b")})
	propose(orbit.Evict{Capsule: capsule("low"), From: node("b"), Since: placed(capsule("low")).PlacedAt, For: capsule("high")},
		orbit.Place{Capsule: capsule("high"), Node: node("b")})
	propose(orbit.Nominate{Capsule: capsule("waits"), Aged: int32(n), Ends: time.Unix(3000, 5),
		Parts: []orbit.NominatedRoom{{Node: node("b"), Room: orbit.Resources{orbit.CPU: 10}}}})
	propose(orbit.Place{Capsule: capsule("w0"), Node: node("c")})
	propose(orbit.Hold{ID: orbit.HoldID(name("hold")), Node: node("c"), Room: orbit.Resources{orbit.CPU: 1}, For: "x", Ends: time.Unix(2000, 7)})
	propose(orbit.Hold{ID: orbit.HoldID(name("short")), Node: node("c"), Room: orbit.Resources{orbit.CPU: 1}, Ends: time.Unix(2000, 7)})
	propose(orbit.Release{Hold: orbit.HoldID(name("short"))})
	propose(orbit.Nominate{Capsule: capsule("waits"), Aged: int32(n), Ends: time.Unix(3000, 5), Lends: time.Hour,
		Parts: []orbit.NominatedRoom{{Node: node("c"), Room: orbit.Resources{orbit.CPU: 10}}}})
	propose(orbit.Submit{IDs: []orbit.CapsuleID{capsule("fills")}, Spec: &orbit.Spec{Envelope: cpu(2), RunsAtMost: time.Hour, Backfills: true}},
		orbit.Place{Capsule: capsule("fills"), Node: node("c")})
	if n > 2 { // kinds that came after the files of testdata
		larger := *low
		larger.Envelope = cpu(20)
		propose(orbit.Adopt{Capsule: capsule("found"), Spec: low, Node: node("c")})
		propose(orbit.Resize{Capsule: capsule("low"), Spec: &larger})
	}
}

// The files that the first version of the format wrote are read as they were meant: the state is the one that was dumped then.
// They have each kind of commitment and of record. So has the dump, which restores to the same state.
func TestStoredFiles(t *testing.T) {
	dir := filepath.Join("testdata", "v1")
	if *store {
		require.NoError(t, os.RemoveAll(dir))
		l, err := diskledger.Open(dir, diskledger.Options{})
		require.NoError(t, err)
		everything(t, l, 1)
		require.NoError(t, l.Checkpoint(ctx))
		everything(t, l, 2)
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join("testdata", "v1.dump"), []byte(text(s)), 0o644))
		closed(t, l)
		require.NoError(t, os.Remove(filepath.Join(dir, "LOCK")))
	}
	want, err := os.ReadFile(filepath.Join("testdata", "v1.dump"))
	require.NoError(t, err)
	mem := vfs.NewMem()
	_, err = vfs.Clone(vfs.Default, mem, dir, "ledger")
	require.NoError(t, err)
	kinds := map[string]bool{}
	found, err := diskledger.Inspect(mem, "ledger", func(e diskledger.Entry) error {
		for _, c := range e.Changes {
			kinds[strings.TrimPrefix(fmt.Sprintf("%T", c.Do), "orbit.")] = true
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, string(want), text(found.State))
	for _, kind := range []string{"PutNode", "RemoveNode", "Submit", "Place", "Release", "Hold", "Assign", "Mark", "Nominate", "Evict", "Confirm", "PutBudget", "RemoveBudget"} {
		require.True(t, kinds[kind], kind)
	}
	for _, kind := range []string{"orbit", "node", "spec", "gang", "capsule", "hold", "mark", "budget", "recent", "end"} {
		require.Contains(t, "\n"+string(want), "\n{\""+kind+"\":", kind)
	}
	restored := new(orbit.State)
	require.NoError(t, restored.Restore(bytes.NewReader(want)))
	require.Equal(t, string(want), text(restored))
	l := open(t, mem, diskledger.Options{}) // and it goes on
	everything(t, l, 3)
	s, err := l.Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, &orbit.Nominee{Capsule: "waits3"}, s.Capsule("fills3").Borrows)
	require.NoError(t, l.Checkpoint(ctx))
	closed(t, l)
	again, err := open(t, mem, diskledger.Options{}).Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, text(s), text(again))
	require.NoError(t, again.Verify())
}

// Files of a later version are refused, and are not called damaged.
func TestLaterVersion(t *testing.T) {
	fs, l, _ := history(t)
	closed(t, l)
	for name, later := range map[string]string{
		"00000002.checkpoint": `{"diskledger":"checkpoint","version":2,"number":2,"revision":2}`,
		"00000003.log":        `{"diskledger":"log","version":2,"number":3,"revision":4,"previous":9,"more":1}`,
	} {
		var content bytes.Buffer
		_, err := record.NewWriter(&content).WriteRecord([]byte(later))
		require.NoError(t, err)
		_, err = diskledger.Open("ledger", diskledger.Options{FS: folderOf(t, files(t, fs), name, content.Bytes())})
		require.ErrorIs(t, err, diskledger.ErrVersion)
		require.NotErrorIs(t, err, diskledger.ErrCorrupt)
	}
}
