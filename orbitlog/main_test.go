package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/logledger"
)

// call runs a command.
func call(t *testing.T, args ...string) (status int, out, problems string) {
	t.Helper()
	var o, p strings.Builder
	c := &command{out: &o, problems: &p, env: func(string) string { return "" }}
	status = c.run(t.Context(), args)
	return status, o.String(), p.String()
}

// ok runs a command that must succeed, and returns what it prints.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	status, out, problems := call(t, args...)
	require.Zero(t, status, "%v: %s", args, problems)
	require.Empty(t, problems)
	return out
}

// fails runs a command that must fail with the wanted status, and returns the problems that it prints.
func fails(t *testing.T, want int, args ...string) string {
	t.Helper()
	status, _, problems := call(t, args...)
	require.Equal(t, want, status, "%v: %s", args, problems)
	return problems
}

// small makes a ledger with three marks in a new folder, which it returns. A checkpoint has the first mark, the log the others.
func small(t *testing.T) string {
	dir := t.TempDir()
	l, err := diskledger.Open(dir, diskledger.Options{})
	require.NoError(t, err)
	for i := range 3 {
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: fmt.Sprint("k", i), Value: "v"}}})
		require.NoError(t, err)
		if i == 0 {
			require.NoError(t, l.Checkpoint(t.Context()))
		}
	}
	require.NoError(t, l.Close())
	return dir
}

// stored returns a copy of the ledger that a release has stored in the folder of this name, and the dump of its state.
func stored(t *testing.T, name string) (dir, state string) {
	from := filepath.Join("..", "diskledger", "testdata", name)
	dir = filepath.Join(t.TempDir(), "ledger")
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	dump, err := os.ReadFile(from + ".dump")
	require.NoError(t, err)
	return dir, string(dump)
}

// The commands state, verify and compact do what they say to a folder. Every command refuses a folder without a ledger, and leaves it
// as it is; verify refuses a folder that is in use.
func TestCommands(t *testing.T) {
	dir := small(t)
	log := "file:" + dir
	open, err := diskledger.Open(dir, diskledger.Options{})
	require.NoError(t, err)
	require.Contains(t, fails(t, notDone, "verify", log), "close the process that has the folder open")
	require.NoError(t, open.Close())
	before := ok(t, "state", log)
	require.Contains(t, before, `{"mark":{"key":"k1","value":"v","changed":2}}`)
	require.Equal(t, "revision 3, 0 nodes, 0 capsules\nthe checkpoint has the first 1 entries; 2 more with 2 changes come after it\n"+
		"0 bytes of an unfinished write\nverify: ok\n", ok(t, "verify", log))
	for range 2 {
		require.Equal(t, "revision 3, 0 nodes, 0 capsules\nthe checkpoint has the first 3 entries; 0 more with 0 changes come after it\n"+
			"0 bytes of an unfinished write\ncompact: ok\n", ok(t, "compact", log))
	}
	require.Equal(t, before, ok(t, "state", log))
	files, err := filepath.Glob(filepath.Join(dir, "0*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	for _, command := range []string{"print", "state", "verify", "compact"} {
		missing, empty := filepath.Join(t.TempDir(), "missing"), t.TempDir()
		for _, none := range []string{missing, empty} {
			require.Contains(t, fails(t, notDone, command, "file:"+none), "there is no ledger")
		}
		require.NoDirExists(t, missing)
	}
}

// print shows each entry as a comment with its index, writer, revision and place, followed by its changes.
func TestPrint(t *testing.T) {
	dir := t.TempDir()
	l, err := diskledger.Open(dir, diskledger.Options{})
	require.NoError(t, err)
	propose := func(keys ...string) {
		var batch []orbit.Proposal
		for _, key := range keys {
			batch = append(batch, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: key, Value: "v"}}})
		}
		for _, out := range l.ProposeBatch(t.Context(), batch) {
			require.NoError(t, out.Err)
		}
	}
	propose("k0")
	require.NoError(t, l.Checkpoint(t.Context()))
	propose("k1")
	propose("k2", "k3", "k4")
	require.NoError(t, l.Close())
	require.Regexp(t, `^# checkpoint after entry 1, revision 1: \d+ bytes, `+dir+`/00000002\.checkpoint
# entry 2 by [0-9a-f]{16}, revision 2: \d+ bytes, `+dir+`/00000002\.log at byte \d+
{"revision":2,"do":{"mark":{"key":"k1","value":"v"}}}
# entry 3 by [0-9a-f]{16}, revisions 3 to 5: \d+ bytes, `+dir+`/00000002\.log at byte \d+
{"revision":3,"do":{"mark":{"key":"k2","value":"v"}}}
{"revision":4,"do":{"mark":{"key":"k3","value":"v"}}}
{"revision":5,"do":{"mark":{"key":"k4","value":"v"}}}
$`, ok(t, "print", "file:"+dir))
}

// Folders of both versions of the format are read, copied and compacted. Reading changes nothing in them.
func TestVersions(t *testing.T) {
	for _, name := range []string{"v1-3", "v2", "v2-2", "v2-3", "v2-4"} {
		dir, want := stored(t, name)
		require.Equal(t, want, ok(t, "state", "file:"+dir), name)
		require.Contains(t, ok(t, "verify", "file:"+dir), "verify: ok\n")
		require.Contains(t, ok(t, "print", "file:"+dir), `"do":{"nominate":{`)
		require.NoError(t, os.Remove(filepath.Join(dir, "LOCK")))
		require.Equal(t, content(t, filepath.Join("..", "diskledger", "testdata", name)), content(t, dir))
		to := "file:" + filepath.Join(t.TempDir(), "to")
		ok(t, "copy", "file:"+dir, to)
		require.Equal(t, want, ok(t, "state", to))
		ok(t, "compact", "file:"+dir)
		require.Equal(t, want, ok(t, "state", "file:"+dir))
	}
}

// content returns the files of a folder.
func content(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, file := range list {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		require.NoError(t, err)
		out[file.Name()] = string(text)
	}
	return out
}

// Every command refuses a damaged folder, says in which file and where the damage is, and changes nothing. The target of a copy is
// not even made.
func TestDamage(t *testing.T) {
	for _, name := range []string{"00000002.checkpoint", "00000002.log"} {
		dir := small(t)
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		text[100] ^= 1
		require.NoError(t, os.WriteFile(file, text, 0o600))
		before := content(t, dir)
		for _, command := range []string{"print", "state", "verify", "compact"} {
			problem := fails(t, unsound, command, "file:"+dir)
			require.Regexp(t, `damaged: .*`+name+` at byte \d+: `, problem)
			require.Contains(t, problem, "restore the log from a copy")
		}
		to := filepath.Join(t.TempDir(), "to")
		require.Contains(t, fails(t, unsound, "copy", "file:"+dir, "file:"+to), name+" at byte ")
		require.NoDirExists(t, to)
		require.Equal(t, before, content(t, dir))
	}
}

// What a killed process has left of an unfinished write is counted, and not read as an entry.
func TestUnfinishedWrite(t *testing.T) {
	dir := small(t)
	file, err := os.OpenFile(filepath.Join(dir, "00000002.log"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString("torn")
	require.NoError(t, errors.Join(err, file.Close()))
	require.Contains(t, ok(t, "verify", "file:"+dir), "\n4 bytes of an unfinished write\nverify: ok\n")
}

// copy refuses a target that has a ledger already, even one without any entry; a target that is the source; and a source without a
// ledger.
func TestCopyRefused(t *testing.T) {
	from := "file:" + small(t)
	empty := t.TempDir()
	l, err := diskledger.Open(empty, diskledger.Options{})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for _, dir := range []string{small(t), empty} {
		before := content(t, dir)
		for _, args := range [][]string{{"copy", from, "file:" + dir}, {"copy", "-redo", from, "file:" + dir}} {
			require.Contains(t, fails(t, notDone, args...), "the target has a ledger already; name another target")
		}
		require.Equal(t, before, content(t, dir))
	}
	require.Contains(t, fails(t, notDone, "copy", from, from), "in use")
	require.Contains(t, fails(t, notDone, "copy", "file:"+t.TempDir(), "file:"+t.TempDir()), "there is no ledger")
}

// Every command refuses the target of an interrupted copy, until copy -redo has made it whole.
func TestCopyInterrupted(t *testing.T) {
	from, want := stored(t, "v2")
	to := t.TempDir()
	interrupt(t, "file:"+from, "file:"+to)
	redone(t, "file:"+from, "file:"+to, want)
}

// interrupt begins a copy, and cancels it at its third part.
func interrupt(t *testing.T, from, to string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &command{env: os.Getenv}
	open := func(name string, purpose use) *store {
		a, err := parse(name)
		require.NoError(t, err)
		s, err := c.open(ctx, a, purpose)
		require.NoError(t, err)
		return s
	}
	source, target, n := open(from, toRead), open(to, toMake), 0
	_, err := logledger.Copy(ctx, source, target, logledger.CopyOptions{Visit: func(logledger.Part) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, errors.Join(source.Close(), target.Close()))
}

// redone checks that every command refuses a log with an unfinished copy, and that copy -redo makes it whole.
func redone(t *testing.T, from, to, want string) {
	for _, command := range []string{"print", "state", "verify", "compact"} {
		require.Contains(t, fails(t, unsound, command, to), "a copy to this log was not finished")
	}
	require.Contains(t, fails(t, unsound, "copy", to, "file:"+t.TempDir()), "a copy to this log was not finished")
	require.Contains(t, fails(t, unsound, "copy", from, to), "copy -redo FROM TO makes it whole")
	ok(t, "copy", "-redo", from, to)
	require.Equal(t, want, ok(t, "state", to))
	require.Contains(t, fails(t, notDone, "copy", "-redo", from, to), "has a ledger already")
}

// Wrong arguments are refused with the usage.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"verify"}, {"mend", "file:x"}, {"copy", "file:x"}, {"copy", "-again", "file:x", "file:y"}, {"verify", "x"}, {"verify", "file:"},
		{"verify", "file:x", "file:y"}, {"verify", "etcd:"}, {"verify", "etcd:a/x,b/y"}, {"verify", "postgres://h?%zz"},
	} {
		require.Contains(t, fails(t, misused, args...), "usage: orbitlog", "%v", args)
	}
}

// Addresses are parsed as the documentation says, and printed without passwords.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]struct {
		address
		text string
	}{
		"file:/a/b": {address{kind: "file", dir: "/a/b"}, "file:/a/b"},
		"file:a:b":  {address{kind: "file", dir: "a:b"}, "file:a:b"},
		"etcd:h:1":  {address{kind: "etcd", endpoints: []string{"h:1"}, prefix: "orbit/"}, "etcd:h:1/orbit"},
		"etcd:http://h:1,https://[::1]:2/a/b/": {
			address{kind: "etcd", endpoints: []string{"http://h:1", "https://[::1]:2"}, prefix: "a/b/"}, "etcd:http://h:1,https://[::1]:2/a/b"},
		"postgres://me:secret@h,i/db":                                {address{kind: "postgres", url: "postgres://me:secret@h,i/db"}, "postgres://h,i/db?schema=orbit&name=orbit"},
		"postgresql:///db?host=%2Fx&name=n&password=secret&schema=s": {address{kind: "postgres", url: "postgresql:///db?host=%2Fx&password=secret", schema: "s", name: "n"}, "postgresql:///db?schema=s&name=n"},
	} {
		a, err := parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want.address, a)
		require.Equal(t, want.text, a.String())
	}
}

// No part of an address that cannot be parsed is printed, because it may be a password.
func TestWrongAddresses(t *testing.T) {
	for _, text := range []string{"postgres://me:se?secret@h/db", "postgresql:me:secret@h", "postgres//me:secret@h", "etcd:http://user:secret@host", "etcd:/,http://user:secret@host", "me:secret@h", "secret", "", "Etcd:secret"} {
		_, err := parse(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, fails(t, misused, "verify", text), "secret")
	}
}

// At each tick one line says what is being done, if anything is.
func TestProgress(t *testing.T) {
	var out strings.Builder
	ticks := make(chan time.Time)
	p := start(&out, ticks)
	ticks <- time.Time{} // nothing is being done
	ticks <- time.Time{} // once this is received, the tick before has been handled
	p.begin("reading", 9)
	ticks <- time.Time{}
	ticks <- time.Time{}
	p.part(&logledger.Part{Index: 4, Bytes: 10, State: new(orbit.State)})
	p.part(&logledger.Part{Index: 5, Bytes: 20})
	ticks <- time.Time{}
	p.stop()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Regexp(t, `^orbitlog: reading: the checkpoint, \d+s$`, lines[0])
	require.Regexp(t, `^orbitlog: reading: entry 5 of 9, 30 bytes, \d+s$`, lines[len(lines)-1])
}
