package diskledger_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/logledger"
)

// stored names the folders of testdata, each of which has a ledger and a dump of it. The last one has every kind of commitment and every
// field of today; the first was written before some of the fields were there.
var stored = []string{"v1", "v1-2", "v1-3", "v2", "v2-2", "v2-3", "v2-4"}

// counted adds to the oldest dump the failures that today's ledger counts when it reads the log. The version that wrote the dump did not count
// failures.
var counted = strings.NewReplacer(`"placedBy":"021c0000000000000000000000000000"}}`,
	`"placedBy":"021c0000000000000000000000000000","failures":{"attempts":1,"inARow":1,"nodes":[{"node":"d2","times":1,"revision":79}]}}}`)

// store writes the last folder of testdata. First add the name of a new folder to stored: what a release
// has stored stays.
var store = flag.Bool("store", false, "write the last folder of testdata anew")

// everything commits each kind of commitment at least once, and leaves a state with each kind of record.
func everything(t *testing.T, l *diskledger.Ledger, n int) {
	serial := byte(0)
	propose := func(do ...orbit.Commitment) {
		serial++
		_, err := l.Propose(ctx, orbit.Proposal{ID: orbit.ProposalID{byte(n), serial}, Do: do})
		require.NoError(t, err)
	}
	state := func() *orbit.State {
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		return s
	}
	placed := func(id orbit.CapsuleID) *orbit.Capsule { return state().Capsule(id) }
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
	propose(orbit.Nominate{Capsule: capsule("waits"), Aged: int32(2 * n), Ends: time.Unix(3000, 5),
		Parts: []orbit.NominatedRoom{{Node: node("b"), Room: orbit.Resources{orbit.CPU: 10}}}})
	propose(orbit.Place{Capsule: capsule("w0"), Node: node("c")})
	propose(orbit.Hold{ID: orbit.HoldID(name("hold")), Node: node("c"), Room: orbit.Resources{orbit.CPU: 1}, For: "x", Ends: time.Unix(2000, 7)})
	propose(orbit.Hold{ID: orbit.HoldID(name("short")), Node: node("c"), Room: orbit.Resources{orbit.CPU: 1}, Ends: time.Unix(2000, 7)})
	propose(orbit.Release{Hold: orbit.HoldID(name("short"))})
	propose(orbit.Nominate{Capsule: capsule("waits"), Aged: int32(2 * n), Ends: time.Unix(3000, 5), Lends: time.Hour,
		Parts: []orbit.NominatedRoom{{Node: node("c"), Room: orbit.Resources{orbit.CPU: 10}}}})
	propose(orbit.Submit{IDs: []orbit.CapsuleID{capsule("fills")}, Spec: &orbit.Spec{Envelope: cpu(2), RunsAtMost: time.Hour, Backfills: true}},
		orbit.Place{Capsule: capsule("fills"), Node: node("c")})
	larger := *low
	larger.Envelope = cpu(20)
	propose(orbit.Adopt{Capsule: capsule("found"), Spec: low, Node: node("c")})
	propose(orbit.Respec{Capsule: capsule("low"), Spec: &larger})
	details(int32(2*n+1), propose, state, func(s string) string { return fmt.Sprint(s, n) })
}

// details sets the fields that everything leaves unset.
func details(aged int32, propose func(...orbit.Commitment), state func() *orbit.State, name func(string) string) {
	node := func(s string) orbit.NodeID { return orbit.NodeID(name(s)) }
	capsule := func(s string) orbit.CapsuleID { return orbit.CapsuleID(name(s)) }
	since := func(s string) orbit.Revision { return state().Capsule(capsule(s)).PlacedAt }
	size := func(cpu int64) orbit.Envelope {
		return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}, Limit: orbit.Resources{orbit.CPU: 2 * cpu}}
	}
	zone := orbit.Predicate{Key: "zone", Op: "In", Values: []string{"z1", "z2"}}
	fussy := &orbit.Spec{Module: "fussy", Envelope: size(2), Devices: orbit.DeviceRequest{Count: 1, Milli: 100, Models: []string{"gpu"}},
		Require:  []orbit.Predicate{zone, {Op: "AnyOf", Terms: [][]orbit.Predicate{{{Key: "rack", Op: "Exists"}}}}},
		Tolerate: []orbit.Toleration{{Key: "reserved", Op: "Equal", Value: "gpu", Effect: "NoExecute", For: time.Hour}},
		Prefer:   []orbit.Preference{{Predicate: zone, Weight: 0.5}}, Spread: orbit.Domains{Level: "rack", Names: []string{"r1"}},
		Group: "f", Near: orbit.Near{Group: "f", Level: "zone"}, Nears: []orbit.Near{{Group: "f", Level: "rack"}},
		Apart: []orbit.Apart{{Group: "elsewhere", Level: orbit.NodeKey, Labelled: true}}, Even: []orbit.Even{{Group: "f", Level: "zone", MaxSkew: 9, MinDomains: 1, Domains: []string{"z1"},
			HonorTaints: true, IgnoreRequire: true}},
		PreferCompany: []orbit.Company{{Group: "elsewhere", Level: "rack", Weight: -0.5}},
		Extras:        []orbit.Extra{{Name: "key", Amount: 2}, {Name: "ip", Amount: 1}},
		Start:         orbit.Start{Template: "t", Volumes: []string{"v"}, Parent: "p", CrossHost: true}}
	confirm := func(s string, c orbit.Confirm) {
		c.Capsule, c.Since = capsule(s), since(s)
		propose(c)
	}
	propose(orbit.PutNode{Node: orbit.Node{ID: node("d"), Capacity: orbit.Resources{orbit.CPU: 30}, Confirms: true, Labels: map[string]string{"rack": "r1", "zone": "z1"},
		Devices: orbit.Devices{Model: "gpu", Count: 4, Unhealthy: 8}, Taints: []orbit.Taint{{Key: "reserved", Value: "gpu", Effect: "NoExecute"}},
		Extras: []orbit.Extra{{Name: "key", Amount: 40}, {Name: "ip", Amount: 30}}}},
		orbit.PutNode{Node: orbit.Node{ID: node("e"), Capacity: orbit.Resources{orbit.CPU: 10}, State: orbit.Cordoned}},
		orbit.PutNode{Node: orbit.Node{ID: node("f"), Capacity: orbit.Resources{orbit.CPU: 10}, Devices: orbit.Devices{Model: "gpu", Count: 2}}})
	propose(orbit.PutBudget{Budget: orbit.Budget{ID: orbit.BudgetID(name("free")), Group: "f", Expected: 1, Missing: 1, FreeUnready: true, Above: 50}},
		orbit.PutBudget{Budget: orbit.Budget{ID: orbit.BudgetID(name("lax")), Module: "lax", Expected: 1, Missing: 1, IgnoreReady: true}})
	propose(orbit.Submit{IDs: []orbit.CapsuleID{capsule("serves"), capsule("ends"), capsule("fails"), capsule("after"), capsule("kept")}, Spec: fussy})
	for _, s := range []string{"serves", "ends", "fails"} {
		propose(orbit.Place{Capsule: capsule(s), Node: node("d"), Devices: 1}, orbit.Protect{Capsule: capsule(s), For: time.Second})
		confirm(s, orbit.Confirm{Ready: true})
	}
	propose(orbit.Protect{Capsule: capsule("ends"), Since: since("ends")})
	confirm("serves", orbit.Confirm{NotReady: true})
	confirm("serves", orbit.Confirm{Ready: true})
	propose(orbit.Release{Capsule: capsule("fails"), From: node("d"), Stopped: true, At: 9})
	propose(orbit.Release{Capsule: capsule("ends"), Final: true})
	regrouped := *fussy
	regrouped.Group, regrouped.Near, regrouped.Nears, regrouped.Even = "", orbit.Near{}, nil, nil
	propose(orbit.Respec{Capsule: capsule("ends"), Since: since("ends"), Spec: &regrouped, Stopping: true})
	propose(orbit.Place{Capsule: capsule("after"), Node: node("d"), Devices: 1, After: true})
	confirm("ends", orbit.Confirm{Stopped: true})
	smaller := *fussy
	smaller.Envelope = size(1)
	propose(orbit.Respec{Capsule: capsule("serves"), Since: since("serves"), Spec: &smaller, Applied: true})
	propose(orbit.Adopt{Capsule: capsule("ghost"), Spec: fussy, Node: node("d"), Devices: 2, Note: "found", At: 7})
	propose(orbit.Release{Capsule: capsule("ghost"), Final: true})
	propose(orbit.Hold{ID: orbit.HoldID(name("gpu")), Node: node("d"), Room: orbit.Resources{orbit.CPU: 1}, Devices: 4, Milli: 500, For: "x", Ends: time.Unix(2000, 7)})
	gang, role := orbit.GangID(name("loose")), orbit.Role{Name: "w", Members: []orbit.CapsuleID{capsule("l0")}}
	role.Spec = &orbit.Spec{Class: orbit.GangClass, Priority: 9, Envelope: size(8), Devices: orbit.DeviceRequest{Count: 1, Milli: 100}, Tolerate: fussy.Tolerate}
	propose(orbit.Submit{IDs: []orbit.CapsuleID{capsule("victim")}, Spec: &orbit.Spec{Envelope: size(4)}}, orbit.Place{Capsule: capsule("victim"), Node: node("f")},
		orbit.Submit{Gang: &orbit.Gang{ID: gang, Levels: []string{"rack"}, Loose: true, Roles: []orbit.Role{role}}})
	propose(orbit.Evict{Capsule: capsule("victim"), From: node("f"), Since: since("victim"), ForGang: gang},
		orbit.Place{Capsule: capsule("l0"), Node: node("f"), Devices: 1})
	role.Members, gang = []orbit.CapsuleID{capsule("m0")}, orbit.GangID(name("lends"))
	propose(orbit.Submit{Gang: &orbit.Gang{ID: gang, Roles: []orbit.Role{role}}})
	parts := []orbit.NominatedRoom{{Node: node("d"), Room: orbit.Resources{orbit.CPU: 8}, Devices: 2, Milli: 100}}
	propose(orbit.Nominate{Gang: gang, Aged: aged, Parts: parts, Ends: time.Unix(3000, 5)})
	propose(orbit.Nominate{Gang: gang, Aged: aged, Since: state().Gang(gang).Nomination.Made, Parts: parts, Ends: time.Unix(3000, 5), Lends: time.Hour})
	propose(orbit.Submit{IDs: []orbit.CapsuleID{capsule("borrows")}, Spec: &orbit.Spec{Envelope: size(2), RunsAtMost: time.Hour, Backfills: true, Tolerate: fussy.Tolerate}},
		orbit.Place{Capsule: capsule("borrows"), Node: node("d")})
	grows := orbit.Gang{ID: orbit.GangID(name("grows")), Min: 1, Roles: []orbit.Role{{Name: "w", Spec: role.Spec, Members: []orbit.CapsuleID{capsule("g0")}}}}
	propose(orbit.Submit{Gang: &grows, LabelsOf: map[orbit.CapsuleID]map[string]string{capsule("g0"): {"uid": "7"}}})
	joins := grows
	joins.Roles = []orbit.Role{{Name: "w", Spec: role.Spec, Members: []orbit.CapsuleID{capsule("g1")}}}
	propose(orbit.Submit{Gang: &joins, Join: true})
	queue := func(s string) orbit.QueueID { return orbit.QueueID(name(s)) }
	propose(orbit.PutQueue{Queue: orbit.Queue{ID: queue("company"), Nominal: map[string]int64{"cpu": 4, "device/gpu": 1500, "extra/ip": 2}}},
		orbit.PutQueue{Queue: orbit.Queue{ID: queue("team"), Parent: queue("company"), Nominal: map[string]int64{"cpu": 2}, Borrow: map[string]int64{"cpu": 3},
			Lend: map[string]int64{"cpu": 1}, Weight: 2}},
		orbit.PutQueue{Queue: orbit.Queue{ID: queue("closed")}})
	propose(orbit.RemoveQueue{Queue: queue("closed")})
	propose(orbit.PutNode{Node: orbit.Node{ID: node("shared"), Capacity: orbit.Resources{orbit.CPU: 10}}},
		orbit.Submit{IDs: []orbit.CapsuleID{capsule("charged"), capsule("queued")}, Spec: &orbit.Spec{Queue: queue("team"), Envelope: size(3)}},
		orbit.Place{Capsule: capsule("charged"), Node: node("shared")})
	propose(orbit.PutNode{Node: orbit.Node{ID: node("vanishes"), Capacity: orbit.Resources{orbit.CPU: 10}}},
		orbit.Submit{IDs: []orbit.CapsuleID{capsule("pod")}, Spec: &orbit.Spec{Envelope: size(2), Attempts: 3, Ends: true}},
		orbit.Submit{IDs: []orbit.CapsuleID{capsule("pod2")}, Spec: &orbit.Spec{Envelope: size(2), Attempts: 3, Ends: true}})
	propose(orbit.Place{Capsule: capsule("pod"), Node: node("vanishes")})
	propose(orbit.RemoveNode{Node: node("vanishes"), Gone: true})
	for _, id := range []string{"from", "to"} {
		propose(orbit.PutNode{Node: orbit.Node{ID: node(id), Capacity: orbit.Resources{orbit.CPU: 4}, Confirms: true}})
	}
	propose(orbit.Submit{IDs: []orbit.CapsuleID{capsule("surges")}, Spec: &orbit.Spec{Envelope: size(2), Movable: true, Surge: true}})
	propose(orbit.Place{Capsule: capsule("surges"), Node: node("from"), Note: "first"})
	confirm("surges", orbit.Confirm{Ready: true})
	propose(orbit.Evict{Capsule: capsule("surges"), From: node("from"), Since: since("surges"), Surge: true}, orbit.Place{Capsule: capsule("surges"), Node: node("to")})
}

// Stored files are read as they were meant: the state is the one that was dumped then. So is the dump, which restores to the same state.
// The last of them lack nothing that can be written today.
func TestStoredFiles(t *testing.T) {
	if *store {
		storeToday(t, stored[len(stored)-1])
	}
	for i, name := range stored {
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("testdata", name+".dump"))
			require.NoError(t, err)
			mem := vfs.NewMem()
			_, err = vfs.Clone(vfs.Default, mem, filepath.Join("testdata", name), "ledger")
			require.NoError(t, err)
			kinds, set := map[string]bool{}, fields{}
			found, err := inspect(mem, "ledger", func(e logledger.Part) error {
				for _, c := range e.Entry.Changes {
					kinds[strings.TrimPrefix(fmt.Sprintf("%T", c.Do), "orbit.")] = true
					set.look(reflect.ValueOf(c))
				}
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, counted.Replace(string(want)), text(found.State))
			wanted := []string{"PutNode", "RemoveNode", "Submit", "Place", "Release", "Hold", "Assign", "Mark", "Nominate", "Evict", "Confirm", "PutBudget", "RemoveBudget"}
			if i == len(stored)-1 {
				wanted = append(wanted, "Adopt", "Respec", "Protect", "PutQueue", "RemoveQueue")
				set.lookAt(found.State)
				require.Empty(t, set.unset(), "no stored file has these fields: set them in details, and store another folder with -store")
			}
			for _, kind := range wanted {
				require.True(t, kinds[kind], kind)
			}
			for _, kind := range []string{"orbit", "node", "spec", "gang", "capsule", "hold", "mark", "budget", "recent", "end"} {
				require.Contains(t, "\n"+string(want), "\n{\""+kind+"\":", kind)
			}
			restored := new(orbit.State)
			require.NoError(t, restored.Restore(bytes.NewReader(want)))
			require.Equal(t, string(want), text(restored))
			goesOn(t, mem)
		})
	}
}

// The files of format version 1 stay until a checkpoint of today is on the disk. Whenever a process or the machine dies before that,
// the folder is read as before.
func TestOldFilesStay(t *testing.T) {
	all := oldFiles(t)
	want, err := inspect(folderOf(t, all, "", nil), "ledger", nil)
	require.NoError(t, err)
	for at := 0; ; at++ {
		mem := vfs.NewCrashableMem()
		_, err := vfs.Clone(vfs.Default, mem, "testdata/v1-3", "ledger", vfs.CloneSync)
		require.NoError(t, err)
		for _, dir := range []string{"ledger", ""} {
			d, err := mem.OpenDir(dir)
			require.NoError(t, err)
			require.NoError(t, d.Sync())
		}
		n, acks := 0, orbit.Revision(0)
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
				n++
			}
			if n > at && op.Kind != errorfs.OpFileClose {
				return errors.New("killed")
			}
			return nil
		}))
		if l, err := diskledger.Open("ledger", diskledger.Options{FS: fs, OnError: func(error) {}}); err == nil {
			for i := range 4 {
				if _, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(fmt.Sprint("new", i), 1)}}); err == nil {
					acks++
				}
				if i == 1 {
					_ = l.Checkpoint(ctx)
				}
			}
			_ = l.Close()
		}
		for _, fs := range []vfs.FS{mem.CrashClone(vfs.CrashCloneCfg{}), mem} {
			found, err := inspect(fs, "ledger", nil)
			require.NoError(t, err, "operation %d", at)
			require.GreaterOrEqual(t, found.State.Revision(), want.State.Revision()+acks, "operation %d", at)
			again := open(t, fs, diskledger.Options{})
			s, err := again.Snapshot(ctx)
			require.NoError(t, err)
			require.Equal(t, text(found.State), text(s))
			closed(t, again)
		}
		if n <= at {
			require.Equal(t, orbit.Revision(4), acks)
			names, err := mem.List("ledger")
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"LOCK", "00000004.checkpoint", "00000004.log"}, names)
			return
		}
	}
}

// The removal of the files of version 1 after the first checkpoint of today can end anywhere, and a disk can lose any of the
// removals: what is left of them does not matter.
func TestOldFilesLeft(t *testing.T) {
	mem := vfs.NewMem()
	_, err := vfs.Clone(vfs.Default, mem, "testdata/v1-3", "ledger")
	require.NoError(t, err)
	l := open(t, mem, diskledger.Options{})
	put := func(key string) {
		_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(key, 1)}})
		require.NoError(t, err)
	}
	put("before")
	old := files(t, mem)
	require.NoError(t, l.Checkpoint(ctx))
	check := func() {
		today := files(t, mem)
		want, err := l.Snapshot(ctx)
		require.NoError(t, err)
		names := slices.Sorted(maps.Keys(old))
		for left := range 1 << len(names) {
			all := maps.Clone(today)
			for i, name := range names {
				if left>>i&1 == 1 && all[name] == nil {
					all[name] = old[name]
				}
			}
			fs := folderOf(t, all, "", nil)
			found, err := inspect(fs, "ledger", nil)
			require.NoError(t, err, "%v", slices.Sorted(maps.Keys(all)))
			require.Equal(t, text(want), text(found.State))
			closed(t, open(t, fs, diskledger.Options{}))
		}
	}
	check()
	put("after") // begins a log
	check()
	closed(t, l)
}

// storeToday writes a folder of testdata, and its dump.
func storeToday(t *testing.T, name string) {
	dir := filepath.Join("testdata", name)
	require.NoError(t, os.RemoveAll(dir))
	l, err := diskledger.Open(dir, diskledger.Options{})
	require.NoError(t, err)
	everything(t, l, 1)
	require.NoError(t, l.Checkpoint(ctx))
	everything(t, l, 2)
	s, err := l.Snapshot(ctx)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join("testdata", name+".dump"), []byte(text(s)), 0o644))
	closed(t, l)
	require.NoError(t, os.Remove(filepath.Join(dir, "LOCK")))
}

// goesOn checks that a ledger commits as before, and that what it writes then is read back.
func goesOn(t *testing.T, fs vfs.FS) {
	l := open(t, fs, diskledger.Options{})
	everything(t, l, 3)
	s, err := l.Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, &orbit.Nominee{Capsule: "waits3"}, s.Capsule("fills3").Borrows())
	require.NoError(t, l.Checkpoint(ctx))
	closed(t, l)
	again, err := open(t, fs, diskledger.Options{}).Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, text(s), text(again))
	require.NoError(t, again.Verify())
}

// Files of a later version are refused, and are not called damaged.
func TestLaterVersion(t *testing.T) {
	fs, l, _ := history(t)
	closed(t, l)
	for name, later := range map[string]string{
		"00000002.checkpoint": `{"diskledger":"checkpoint","version":3,"number":2,"index":2}`,
		"00000003.log":        `{"diskledger":"log","version":3,"number":3,"index":4,"previous":9,"more":1}`,
	} {
		var content bytes.Buffer
		_, err := record.NewWriter(&content).WriteRecord([]byte(later))
		require.NoError(t, err)
		_, err = diskledger.Open("ledger", diskledger.Options{FS: folderOf(t, files(t, fs), name, content.Bytes())})
		require.ErrorIs(t, err, logledger.ErrVersion)
		require.NotErrorIs(t, err, logledger.ErrCorrupt)
	}
}
