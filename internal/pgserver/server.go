//go:build linux

// Package pgserver runs a Postgres server on a temporary folder, for tests.
package pgserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrMissing says that there is no Postgres on this machine. Debian's package is postgresql.
var ErrMissing = errors.New("pgserver: found no initdb in PATH, /usr/lib/postgresql/*/bin or ORBIT_POSTGRES_BIN; install postgresql")

// Server is a Postgres server. Its superuser is "postgres", without a password. Its methods must not overlap.
type Server struct {
	bin, dir, port string
	user           *syscall.Credential
	settings       []string
	// main is the server's process; ended is closed when it has ended.
	main  *os.Process
	ended chan struct{}

	mu sync.Mutex // guards log
	// log has the last lines that the server has printed.
	log []string
}

// New makes a server and starts it, with settings such as "max_connections=30" on top of the defaults. Close it.
func New(settings ...string) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	return newServer(bin, settings, func(s *Server) error {
		return s.run(s.command("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N", "-D", s.Data()))
	})
}

// newServer makes a server whose folder with the data is made by fill, and starts it.
func newServer(bin string, settings []string, fill func(*Server) error) (*Server, error) {
	dir, err := os.MkdirTemp("", "orbit-pg")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, settings: settings}
	if err := s.init(fill); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// find returns the folder with the newest version of the server's programs.
func find() (string, error) {
	if dir := os.Getenv("ORBIT_POSTGRES_BIN"); dir != "" {
		return dir, nil
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		initdb, err = filepath.EvalSymlinks(initdb) // the other programs are beside it
		return filepath.Dir(initdb), err
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is valid
	if len(found) == 0 {
		return "", ErrMissing
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })), nil
}

// init makes the folder with the data and starts the server.
func (s *Server) init(fill func(*Server) error) error {
	if err := s.own(); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		return err
	}
	if err := fill(s); err != nil {
		return err
	}
	return s.Start()
}

// run runs a command to its end.
func (s *Server) run(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("pgserver: %s: %w: %s", c.Path, err, out)
	}
	return nil
}

// own gives the folder to a user who is not root, because Postgres does not run as root.
func (s *Server) own() error {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return fmt.Errorf("pgserver: Postgres does not run as root: %w", err)
		}
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	s.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.dir, int(uid), int(gid))
}

// command returns a command that runs as the server's user, and is killed when this process ends.
func (s *Server) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, program), args...)
	c.Dir, c.Env = s.dir, append(os.Environ(), "LC_ALL=C")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.user, Pdeathsig: syscall.SIGQUIT}
	return c
}

// Data is the folder with the server's data.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// Address is the server's address on loopback.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", s.port) }

// URL returns how a user connects to the server over its socket.
func (s *Server) URL(user string) string {
	return fmt.Sprintf("postgres:///postgres?host=%s&port=%s&user=%s", url.QueryEscape(s.dir), s.port, url.QueryEscape(user))
}

// Write writes a file in the folder with the data, which belongs to the server's user.
func (s *Server) Write(name string, data []byte) error {
	name = filepath.Join(s.Data(), name)
	err := os.WriteFile(name, data, 0o600)
	if err == nil && s.user != nil {
		err = os.Chown(name, int(s.user.Uid), int(s.user.Gid))
	}
	return err
}

// Standby makes a standby of the server and starts it, with the same settings. Close it. The server is down while its data
// are copied: pg_basebackup, which needs no such pause, is not among the programs that every package brings.
func (s *Server) Standby() (*Server, error) {
	return newServer(s.bin, s.settings, func(standby *Server) error {
		if err := s.Stop(syscall.SIGINT); err != nil {
			return err
		}
		if err := s.run(exec.Command("cp", "-a", s.Data(), standby.Data())); err != nil {
			return err
		}
		standby.settings = append(slices.Clip(s.settings), "primary_conninfo="+s.URL("postgres"))
		return errors.Join(standby.Write("standby.signal", nil), s.Start())
	})
}

// Start starts the server, and waits until it takes connections.
func (s *Server) Start() error {
	args := []string{"-D", s.Data(), "-k", s.dir, "-p", s.port, "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=64MB"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	c := s.command("postgres", args...)
	out, err := c.StderrPipe()
	if err != nil {
		return err
	}
	started, ready := make(chan error, 1), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // the server would get its signal of death when the thread ends that has started it
		defer runtime.UnlockOSThread()
		defer close(ended)
		if started <- c.Start(); c.Process == nil {
			return
		}
		s.read(out, ready)
		_ = c.Wait() // how it ends is the business of who ends it
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	s.main, s.ended = c.Process, ended
	select {
	case <-ready:
		return nil
	case <-ended:
		return fmt.Errorf("pgserver: it has ended by itself:\n%s", s.Log())
	}
}

// read keeps what the server prints, and closes ready when it takes connections.
func (s *Server) read(out io.Reader, ready chan struct{}) {
	in := bufio.NewScanner(out)
	for in.Scan() {
		s.mu.Lock()
		if s.log = append(s.log, in.Text()); len(s.log) > 200 {
			s.log = s.log[100:]
		}
		s.mu.Unlock()
		if ready != nil && strings.Contains(in.Text(), "database system is ready to accept") {
			close(ready)
			ready = nil
		}
	}
}

// Log returns the last lines that the server has printed.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// Stop ends the server by a signal and waits for its end: syscall.SIGINT is a fast shutdown, SIGQUIT an immediate one, as a
// crash. With SIGKILL all its processes are killed.
func (s *Server) Stop(with syscall.Signal) error {
	if s.main == nil {
		return nil
	}
	children := s.children()
	err := s.main.Signal(with)
	if with == syscall.SIGKILL {
		for _, pid := range children {
			_ = syscall.Kill(pid, with) // it may have ended
		}
	}
	<-s.ended
	for _, pid := range children { // they would keep a new server from starting
		for syscall.Kill(pid, 0) == nil {
			time.Sleep(time.Millisecond)
		}
	}
	s.main = nil
	return err
}

// children returns the processes of the server other than its main one.
func (s *Server) children() (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.main.Pid)) // the pattern is valid
	for _, list := range lists {
		text, _ := os.ReadFile(list) // it has none if it has ended
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Pause stops all processes of the server until the function that it returns is called.
func (s *Server) Pause() (resume func()) {
	all := append(s.children(), s.main.Pid)
	signal := func(with syscall.Signal) {
		for _, pid := range all {
			_ = syscall.Kill(pid, with) // a backend may have ended
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// Close ends the server and removes its folder.
func (s *Server) Close() error {
	return errors.Join(s.Stop(syscall.SIGQUIT), os.RemoveAll(s.dir))
}
