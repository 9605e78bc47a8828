package diskledger_test

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// faultFS is a file system whose operations a test can count, delay and make fail.
type faultFS struct {
	vfs.FS
	// before, if set, is called before each operation, with its name and the file's; a number of bytes is given for writes. An
	// error ends the operation; of a write that fails, half is written.
	before func(op, file string) error

	// quiet says that operations are not noted.
	quiet bool

	syncs atomic.Int64 // of logs
	mu    sync.Mutex
	ops   []string
}

// do notes an operation and asks before.
func (f *faultFS) do(op, file string) error {
	file = path.Base(file)
	f.mu.Lock()
	if !f.quiet {
		f.ops = append(f.ops, op+" "+file)
	}
	before := f.before
	f.mu.Unlock()
	if op == "sync" && strings.Contains(file, ".log") {
		f.syncs.Add(1)
	}
	if before == nil {
		return nil
	}
	return before(op, file)
}

// set replaces the hook.
func (f *faultFS) set(before func(op, file string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

// seen returns the operations so far.
func (f *faultFS) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops[:len(f.ops):len(f.ops)]
}

func (f *faultFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.do("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, c)
	return &faultFile{file, f, name}, err
}

func (f *faultFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	if err := f.do("open", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name, o...)
	return &faultFile{file, f, name}, err
}

func (f *faultFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return &faultFile{file, f, name}, err
}

func (f *faultFS) Rename(from, to string) error {
	if err := f.do("rename", to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *faultFS) Remove(name string) error {
	if err := f.do("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faultFS) MkdirAll(name string, mode os.FileMode) error {
	if err := f.do("mkdir", name); err != nil {
		return err
	}
	return f.FS.MkdirAll(name, mode)
}

func (f *faultFS) Lock(name string) (io.Closer, error) {
	if err := f.do("lock", name); err != nil {
		return nil, err
	}
	return f.FS.Lock(name)
}

func (f *faultFS) Unwrap() vfs.FS { return f.FS }

// faultFile is a file of a faultFS.
type faultFile struct {
	vfs.File
	fs   *faultFS
	name string
}

// errShort makes a write write half and say so by its count alone.
var errShort = errors.New("a short write")

func (f *faultFile) Write(p []byte) (int, error) {
	if err := f.fs.do("write", f.name); err != nil {
		n, failed := f.File.Write(p[:len(p)/2])
		if failed != nil || errors.Is(err, errShort) {
			return n, failed
		}
		return n, err
	}
	return f.File.Write(p)
}

func (f *faultFile) Read(p []byte) (int, error) {
	if err := f.fs.do("read", f.name); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *faultFile) Sync() error {
	if err := f.fs.do("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) SyncData() error {
	if err := f.fs.do("sync", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}
