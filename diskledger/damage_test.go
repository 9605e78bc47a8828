package diskledger_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/logledger"
)

// files returns the contents of a folder.
func files(t testing.TB, fs vfs.FS) map[string][]byte {
	out := map[string][]byte{}
	names, err := fs.List("ledger")
	require.NoError(t, err)
	for _, name := range names {
		f, err := fs.Open("ledger/" + name)
		require.NoError(t, err)
		out[name], err = io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	delete(out, "LOCK")
	return out
}

// folderOf returns a file system with a folder of these files, one of which has other contents; nil: it is missing.
func folderOf(t testing.TB, all map[string][]byte, other string, content []byte) vfs.FS {
	fs := vfs.NewMem()
	require.NoError(t, fs.MkdirAll("ledger", 0o755))
	for name, text := range all {
		if name == other {
			text = content
		}
		if text == nil {
			continue
		}
		f, err := fs.Create("ledger/"+name, "test")
		require.NoError(t, err)
		_, err = f.Write(append([]byte(nil), text...))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return fs
}

// history makes a folder with a checkpoint and two logs behind it, and returns the states, by revision.
func history(t testing.TB) (fs *vfs.MemFS, l *diskledger.Ledger, states map[orbit.Revision]string) {
	fs, states = vfs.NewCrashableMem(), map[orbit.Revision]string{}
	note := func() {
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		states[s.Revision()] = text(s)
	}
	propose := func(do ...orbit.Commitment) {
		_, err := l.Propose(ctx, orbit.Proposal{ID: orbit.ProposalID{byte(len(states))}, Do: do})
		require.NoError(t, err)
		note()
	}
	o := diskledger.Options{FS: fs}
	var err error
	l, err = diskledger.Open("ledger", o)
	require.NoError(t, err)
	note()
	propose(node().Do...)
	propose(mark("a", 5), mark("b", 5))
	require.NoError(t, l.Checkpoint(ctx))
	propose(mark("c", 5))
	propose(mark("d", 5), mark("e", 5))
	closed(t, l)
	l, err = diskledger.Open("ledger", o)
	require.NoError(t, err)
	propose(mark("f", 5))
	propose(mark("g", 5), mark("h", 40))
	propose(mark("i", 5))
	return fs, l, states
}

// Each byte of a folder is damaged in two ways, in a long run in four. Either the damage is found, and the file named, with a place at or before the
// byte; or the byte is in the tail of the last log that no confirmed record follows: then the state is one of those that there
// were. A ledger that was closed has no such tail but the record that closes it: it is never opened with another state.
func TestDamagedBytes(t *testing.T) {
	fs, l, states := history(t)
	last := orbit.Revision(len(states) - 1)
	killed := files(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	closed(t, l)
	ended := files(t, fs)
	require.Len(t, ended, 3)
	for kind, all := range map[string]map[string][]byte{"killed": killed, "closed": ended} {
		found, cut := 0, 0
		for name, text := range all {
			for at := range text {
				for _, flip := range flips(text[at]) {
					if flip == 0 {
						continue
					}
					damaged := append([]byte(nil), text...)
					damaged[at] ^= flip
					where := fmt.Sprintf("%s: %s, byte %d of %d ^ %x", kind, name, at, len(text), flip)
					rev, isFound := damages(t, folderOf(t, all, name, damaged), name, int64(at), states, where)
					switch {
					case isFound:
						found++
					case kind == "closed":
						require.Equal(t, last, rev, where)
					default:
						require.GreaterOrEqual(t, rev, last-1, where) // the last group
					}
					if !isFound {
						cut++
						require.Equal(t, "00000003.log", name, where)
					}
				}
			}
		}
		t.Logf("%s: %d found, %d cut off", kind, found, cut)
		require.Greater(t, found, 10*cut)
	}
}

// flips are the ways in which a byte is damaged; the last makes it 0.
func flips(b byte) []byte { return scale.Some(2, 1, 0xff, 0x80, b) }

// damages opens a damaged folder. It returns the revision of its state, or that the damage was found.
func damages(t testing.TB, fs vfs.FS, name string, at int64, states map[orbit.Revision]string, where string) (orbit.Revision, bool) {
	var corrupt *logledger.CorruptError
	found, err := inspect(fs, "ledger", nil)
	l, openErr := diskledger.Open("ledger", diskledger.Options{FS: fs})
	if err != nil {
		require.ErrorAs(t, err, &corrupt, where)
		require.ErrorIs(t, err, logledger.ErrCorrupt)
		require.ErrorAs(t, openErr, &corrupt, where)
		require.Equal(t, name, path.Base(corrupt.Place.Name), where)
		require.LessOrEqual(t, corrupt.Place.Offset, at, where)
		return 0, true
	}
	require.NoError(t, openErr, where)
	s, err := l.Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, states[s.Revision()], text(s), where)
	require.Equal(t, text(found.State), text(s), where)
	closed(t, l)
	return s.Revision(), false
}

// The same for a stored folder of format version 1 that was closed, at one byte in 61: the damage is found, or the state is whole. The log
// is also cut short there: then it lacks the record that closes it, and each state is one of those that there were.
func TestDamagedBytesOfVersion1(t *testing.T) {
	all := oldFiles(t)
	whole, err := inspect(folderOf(t, all, "", nil), "ledger", nil)
	require.NoError(t, err)
	last, states := whole.State.Revision(), map[orbit.Revision]string{whole.State.Revision(): text(whole.State)}
	found, cut := 0, 0
	for name, content := range all {
		for at := 0; at < len(content); at += 61 {
			damaged := append([]byte(nil), content...)
			damaged[at] ^= 0x80
			where := fmt.Sprintf("%s, byte %d", name, at)
			rev, isFound := damages(t, folderOf(t, all, name, damaged), name, int64(at), states, where)
			if isFound {
				found++
			} else {
				require.Equal(t, last, rev, where)
			}
			if name != "00000002.log" {
				continue
			}
			short, err := inspect(folderOf(t, all, name, content[:at:at]), "ledger", nil)
			if err != nil {
				require.ErrorIs(t, err, logledger.ErrCorrupt, where)
				continue
			}
			require.LessOrEqual(t, short.State.Revision(), last)
			require.NoError(t, short.State.Verify())
			cut++
		}
	}
	require.Greater(t, found, 350)
	require.Greater(t, cut, 200)
}

// The last log is cut short at each byte: every group that is whole is there, and nothing else. The others must not be short.
func TestCutShort(t *testing.T) {
	fs, _, states := history(t)
	all := files(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	for name, text := range all {
		before := orbit.Revision(0)
		for at := range text {
			rev, isFound := damages(t, folderOf(t, all, name, text[:at:at]), name, int64(at), states, fmt.Sprintf("%s cut at %d", name, at))
			if name != "00000003.log" {
				require.True(t, isFound, "%s cut at %d", name, at)
			}
			if !isFound {
				require.GreaterOrEqual(t, rev, before)
				before = rev
			}
		}
	}
}

// Files that are missing, exchanged, or of a later version are found.
func TestWrongFiles(t *testing.T) {
	fs, l, _ := history(t)
	closed(t, l)
	all := files(t, fs)
	for name := range all {
		if name == "00000003.log" {
			continue // nothing says that it was there: README.md says so
		}
		_, err := diskledger.Open("ledger", diskledger.Options{FS: folderOf(t, all, name, nil)})
		require.ErrorIs(t, err, logledger.ErrCorrupt, name)
		for other := range all {
			if other != name {
				_, err := diskledger.Open("ledger", diskledger.Options{FS: folderOf(t, all, name, all[other])})
				require.ErrorIs(t, err, logledger.ErrCorrupt, "%s as %s", other, name)
			}
		}
	}
	longer := append(all["00000002.checkpoint"][:len(all["00000002.checkpoint"]):len(all["00000002.checkpoint"])], 7)
	_, err := diskledger.Open("ledger", diskledger.Options{FS: folderOf(t, all, "00000002.checkpoint", longer)})
	require.ErrorIs(t, err, logledger.ErrCorrupt)
	_, err = inspect(vfs.NewMem(), "ledger", nil)
	require.ErrorIs(t, err, diskledger.ErrNoLog)
	fs = vfs.NewMem()
	require.NoError(t, fs.MkdirAll("ledger", 0o755))
	_, err = inspect(fs, "ledger", nil)
	require.ErrorIs(t, err, diskledger.ErrNoLog)
}

// Each entry has a place: its file, and where it begins there.
func TestInspect(t *testing.T) {
	fs, l, states := history(t)
	closed(t, l)
	all := files(t, fs)
	var seen []string
	visit := func(p logledger.Part) error {
		name := path.Base(p.Place.Name)
		seen = append(seen, fmt.Sprint(name, " ", p.Index, " ", len(p.Entry.Changes)))
		if p.State != nil {
			require.Equal(t, int64(-1), p.Place.Offset)
			return nil
		}
		salt := saltOf(t, all[name])
		require.Equal(t, indexed('E', salt, uint64(p.Index), string(p.Data)), string(all[name][p.Place.Offset+7:][:17+len(p.Data)]))
		return nil
	}
	found, err := inspect(fs, "ledger", visit)
	require.NoError(t, err)
	require.Equal(t, []string{"00000002.checkpoint 2 0", "00000002.log 3 1", "00000002.log 4 2", "00000003.log 5 1", "00000003.log 6 2", "00000003.log 7 1"}, seen)
	require.Equal(t, int64(7), found.Changes)
	require.Equal(t, states[7], text(found.State))
	require.Equal(t, all, files(t, fs))
	enough := errors.New("enough")
	_, err = inspect(fs, "ledger", func(logledger.Part) error { return enough })
	require.ErrorIs(t, err, enough)
}

// A log that is only read changes no file, and refuses to write. An unfinished write is left where it is, and counted.
func TestReadOnly(t *testing.T) {
	fs, _, states := history(t)
	all := files(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	all["00000003.log"] = append(all["00000003.log"], "torn"...)
	all["00000009.log.tmp"] = []byte("unfinished")
	torn := folderOf(t, all, "", nil)
	log, err := diskledger.OpenLog("ledger", diskledger.LogOptions{FS: torn, ReadOnly: true})
	require.NoError(t, err)
	_, err = diskledger.OpenLog("ledger", diskledger.LogOptions{FS: torn, ReadOnly: true})
	require.ErrorIs(t, err, diskledger.ErrLocked)
	require.Equal(t, int64(4), log.Unfinished())
	found, err := logledger.Inspect(ctx, log, nil)
	require.NoError(t, err)
	require.Equal(t, states[7], text(found.State))
	_, err = log.Append(ctx, logledger.Append{Index: 8})
	require.ErrorIs(t, err, logledger.ErrFailed)
	require.ErrorIs(t, log.SaveCheckpoint(ctx, 7, func(io.Writer) error { return nil }), logledger.ErrFailed)
	require.NoError(t, log.Close())
	require.Equal(t, all, files(t, torn))
	for name, o := range map[string]diskledger.LogOptions{"existing": {Existing: true}, "read only": {ReadOnly: true}} {
		o.FS = vfs.NewMem()
		_, err := diskledger.OpenLog("ledger", o)
		require.ErrorIs(t, err, diskledger.ErrNoLog, name)
		_, err = o.FS.Stat("ledger")
		require.Error(t, err, name)
	}
}

// In a log of many blocks damage is told from a torn tail too: wherever it is before the last group, also in its first and in its
// last part, it is found; in the last group it is cut off.
func TestDamagedBlocks(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := open(t, fs, diskledger.Options{})
	states := map[orbit.Revision]string{}
	var ends []int64
	noise := rand.New(rand.NewPCG(3, 4))
	for i := range 4 {
		var do []orbit.Commitment
		for j := range 25 {
			value := make([]byte, 4096) // that cannot be compressed by more than a quarter
			for k := range value {
				value[k] = byte('0' + noise.IntN(64))
			}
			do = append(do, orbit.Mark{Key: fmt.Sprint(i, "-", j), Value: string(value)})
		}
		_, err := l.Propose(ctx, orbit.Proposal{Do: do})
		require.NoError(t, err)
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		states[s.Revision()] = text(s)
		ends = append(ends, int64(len(files(t, fs)["00000001.log"])))
	}
	states[0] = ""
	all := files(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	log := all["00000001.log"]
	require.Greater(t, len(log), 9<<15)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range scale.Of(8, 400) {
		at := rng.IntN(len(log))
		switch i % 4 {
		case 0: // at the beginning of a group or near it
			at = int(ends[rng.IntN(3)]) + rng.IntN(9)
		case 1: // at the beginning of a block
			at = rng.IntN(len(log)>>15)<<15 + rng.IntN(9)
		}
		damaged := append([]byte(nil), log...)
		damaged[at] ^= byte(1 + rng.IntN(255))
		where := fmt.Sprintf("byte %d of %d", at, len(log))
		rev, isFound := damages(t, folderOf(t, all, "00000001.log", damaged), "00000001.log", int64(at), states, where)
		switch {
		case isFound:
			require.Less(t, int64(at), ends[2], where)
		case int64(at) < ends[2]:
			require.Equal(t, orbit.Revision(4), rev, where) // filling at the end of a block
		}
	}
}

// frames returns records as a file has them.
func frames(t testing.TB, records ...string) []byte {
	var content bytes.Buffer
	w := record.NewWriter(&content)
	for _, r := range records {
		_, err := w.WriteRecord([]byte(r))
		require.NoError(t, err)
	}
	return content.Bytes()
}

// Behind a torn tail a disk may show blocks of a file that was removed, and an entry may have a text that looks like a record.
// Neither is a sign of damage. A record of the file itself that was written later is.
func TestStaleBlocks(t *testing.T) {
	fs, _, states := history(t)
	all := files(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	log := all["00000003.log"]
	salt := saltOf(t, log)
	for name, c := range map[string]struct {
		record  string
		damaged bool
	}{
		"of another file": {indexed('E', [8]byte{1}, 9, "x"), false}, "older": {indexed('E', salt, 6, "x"), false},
		"the torn one": {indexed('E', salt, 7, "x"), false}, "later": {indexed('E', salt, 8, "x"), true},
		"closed before": {indexed('C', salt, 6, ""), false}, "closed later": {indexed('C', salt, 7, ""), true},
	} {
		fs := folderOf(t, all, "00000003.log", append(log[:len(log)-3:len(log)], frames(t, c.record)...))
		rev, isFound := damages(t, fs, "00000003.log", int64(len(log)), states, name)
		require.Equal(t, c.damaged, isFound, name)
		if !isFound {
			require.Equal(t, orbit.Revision(6), rev, name)
		}
	}
}

// The same with format version 1, where a record is known by its revision.
func TestStaleBlocksOfVersion1(t *testing.T) {
	all := oldFiles(t)
	log := all["00000002.log"]
	log = log[:len(log)-30] // without the record that closes it
	whole, err := inspect(folderOf(t, all, "00000002.log", log), "ledger", nil)
	require.NoError(t, err)
	last := whole.State.Revision()
	change := func(revision orbit.Revision) []byte {
		return frames(t, fmt.Sprintf(`{"revision":%d,"do":{"mark":{"key":"c","value":"vvvvvv"}}}`, revision))
	}
	_, err = inspect(folderOf(t, all, "00000002.log", append(log[:len(log)-3:len(log)], change(3)...)), "ledger", nil)
	require.NoError(t, err)
	_, err = inspect(folderOf(t, all, "00000002.log", append(log[:len(log)-3:len(log)], change(last+1)...)), "ledger", nil)
	require.ErrorIs(t, err, logledger.ErrCorrupt)
}

// oldFiles returns a stored folder of format version 1.
func oldFiles(t testing.TB) map[string][]byte {
	mem := vfs.NewMem()
	_, err := vfs.Clone(vfs.Default, mem, "testdata/v1-3", "ledger")
	require.NoError(t, err)
	return files(t, mem)
}

// saltOf returns the salt of a log.
func saltOf(t testing.TB, log []byte) (salt [8]byte) {
	var header struct{ Salt []byte }
	stream, err := record.NewReader(bytes.NewReader(log), 0).Next()
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(stream).Decode(&header))
	require.Len(t, header.Salt, len(salt))
	return [8]byte(header.Salt)
}

// indexed returns a record of a log.
func indexed(kind byte, salt [8]byte, index uint64, data string) string {
	prefix := append([]byte{kind}, salt[:]...)
	return string(binary.BigEndian.AppendUint64(prefix, index)) + data
}

// Records that are whole and do not follow one another are found.
func TestWrongRecords(t *testing.T) {
	fs, l, _ := history(t)
	closed(t, l)
	all := files(t, fs)
	previous := len(all["00000002.log"])
	salt := saltOf(t, all["00000003.log"])
	text, err := json.Marshal(salt[:])
	require.NoError(t, err)
	header := func(index, previous int) string {
		return fmt.Sprintf(`{"diskledger":"log","version":2,"number":3,"index":%d,"previous":%d,"checkpoint":2,"salt":%s}`, index, previous, text)
	}
	entry := func(index uint64, changes string) string { return indexed('E', salt, index, changes) }
	change := func(revision, seq int) string {
		return fmt.Sprintf(`{"revision":%d,"seq":%d,"do":{"mark":{"key":"x","value":"v"}}}`, revision, seq)
	}
	sound := frames(t, header(4, previous), entry(5, change(5, 0)+"\n"+change(5, 1)), "", indexed('C', salt, 5, ""))
	_, err = inspect(folderOf(t, all, "00000003.log", sound), "ledger", nil)
	require.NoError(t, err)
	wrongRecords(t, all, "00000003.log", map[string][]byte{
		"another index":        frames(t, header(5, previous)),
		"an earlier index":     frames(t, header(3, previous)),
		"a longer log before":  frames(t, header(4, previous+1)),
		"a shorter log before": frames(t, header(4, previous-1)),
		"no salt":              frames(t, `{"diskledger":"log","version":2,"number":3,"index":4}`),
		"a newer checkpoint":   frames(t, `{"diskledger":"log","version":2,"number":3,"index":4,"checkpoint":3,"salt":`+string(text)+`}`),
		"a gap":                frames(t, header(4, previous), entry(6, change(5, 0))),
		"a gap in revisions":   frames(t, header(4, previous), entry(5, change(6, 0))),
		"a gap within":         frames(t, header(4, previous), entry(5, change(5, 0)+"\n"+change(5, 2))),
		"a second time":        frames(t, header(4, previous), entry(5, change(5, 0)), entry(5, change(5, 0))),
		"before the first":     frames(t, header(4, previous), entry(5, change(4, 1))),
		"closed elsewhere":     frames(t, header(4, previous), entry(5, change(5, 0)), indexed('C', salt, 4, "")),
		"behind the end":       frames(t, header(4, previous), indexed('C', salt, 4, ""), entry(5, change(5, 0))),
		"of another file":      frames(t, header(4, previous), indexed('E', [8]byte{1}, 5, change(5, 0))),
		"no prefix":            frames(t, header(4, previous), "E"),
		"no change":            frames(t, header(4, previous), entry(5, "{}")),
		"no entry":             frames(t, header(4, previous), entry(5, "")),
		"breaks a rule":        frames(t, header(4, previous), entry(5, `{"revision":5,"do":{"place":{"capsule":"nobody","node":"n"}}}`)),
	})
}

// wrongRecords requires that each content of a file is found to be damaged.
func wrongRecords(t *testing.T, all map[string][]byte, file string, contents map[string][]byte) {
	for name, content := range contents {
		var corrupt *logledger.CorruptError
		_, err := inspect(folderOf(t, all, file, content), "ledger", nil)
		require.ErrorAs(t, err, &corrupt, name)
		_, err = diskledger.Open("ledger", diskledger.Options{FS: folderOf(t, all, file, content)})
		require.ErrorAs(t, err, &corrupt, name)
	}
}

// The same with format version 1.
func TestWrongRecordsOfVersion1(t *testing.T) {
	all := oldFiles(t)
	found, err := inspect(folderOf(t, all, "", nil), "ledger", nil)
	require.NoError(t, err)
	last, previous := int(found.State.Revision()), len(all["00000002.log"])
	header := func(revision, previous int) string {
		return fmt.Sprintf(`{"diskledger":"log","version":1,"number":3,"revision":%d,"previous":%d}`, revision, previous)
	}
	change := func(revision, seq int) string {
		return fmt.Sprintf(`{"revision":%d,"seq":%d,"do":{"mark":{"key":"x","value":"v"}}}`, revision, seq)
	}
	closing := func(revision int) string { return fmt.Sprintf(`{"closed":%d}`, revision) }
	all["00000003.log"] = nil
	sound := frames(t, header(last, previous), change(last+1, 0)+"\n"+change(last+1, 1), closing(last+1))
	found, err = inspect(folderOf(t, all, "00000003.log", sound), "ledger", nil)
	require.NoError(t, err)
	require.Equal(t, orbit.Revision(last+1), found.State.Revision())
	wrongRecords(t, all, "00000003.log", map[string][]byte{
		"another revision":     frames(t, header(last+1, previous)),
		"a longer log before":  frames(t, header(last, previous+1)),
		"a shorter log before": frames(t, header(last, previous-1)),
		"a gap":                frames(t, header(last, previous), change(last+2, 0)),
		"a gap within":         frames(t, header(last, previous), change(last+1, 0)+"\n"+change(last+1, 2)),
		"a second time":        frames(t, header(last, previous), change(last+1, 0), change(last+1, 0)),
		"before the first":     frames(t, header(last, previous), change(last, 1)),
		"closed elsewhere":     frames(t, header(last, previous), change(last+1, 0), closing(last)),
		"behind the end":       frames(t, header(last, previous), closing(last), change(last+1, 0)),
		"no change":            frames(t, header(last, previous), "{}"),
		"breaks a rule":        frames(t, header(last, previous), fmt.Sprintf(`{"revision":%d,"do":{"place":{"capsule":"nobody","node":"n"}}}`, last+1)),
	})
}
