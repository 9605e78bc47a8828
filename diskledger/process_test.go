package diskledger_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/internal/scale"
)

// childEnv names the folder in which a child process commits until it is killed.
const childEnv = "ORBIT_DISKLEDGER_CHILD"

// child commits from four goroutines, and writes each key that was committed to its standard output.
func child(dir string) {
	l, err := diskledger.Open(dir, diskledger.Options{CheckpointEvery: 130})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 1_000_000 {
				key := fmt.Sprintf("p%d-%d-%d", os.Getpid(), g, i)
				_, err := l.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{mark(key+"/a", 50), mark(key+"/b", 50)}})
				if err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				fmt.Println(key)
			}
		})
	}
	all.Wait()
}

// start starts a child.
func start(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// A process that commits is killed again and again, at random times. What it has been told of is there, whole.
func TestKill(t *testing.T) {
	scale.Long(t)
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 1))
	var told []string
	kills := scale.Of(15, 200)
	for range kills {
		cmd, lines := start(t, dir)
		require.True(t, lines.Scan(), "the child has said nothing")
		told = append(told, lines.Text())
		time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		for lines.Scan() {
			told = append(told, lines.Text())
		}
		require.Error(t, cmd.Wait())
		found, err := inspect(nil, dir, nil)
		require.NoError(t, err)
		for _, key := range told {
			require.False(t, strings.HasPrefix(key, "error"), key)
			_, a := found.State.Mark(key + "/a")
			_, b := found.State.Mark(key + "/b")
			require.NotZero(t, a, key)
			require.NotZero(t, b, key)
		}
		for key := range found.State.Marks("p") {
			_, other := found.State.Mark(key[:len(key)-1] + string('a'+'b'-key[len(key)-1]))
			require.NotZero(t, other, key)
		}
	}
	t.Logf("%d kills, %d commits", kills, len(told))
}

// A second process is refused while the first one has the folder open, and so is a second ledger in the first.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	l, err := diskledger.Open(dir, diskledger.Options{})
	require.NoError(t, err)
	_, err = diskledger.Open(dir+"/../"+dir[strings.LastIndex(dir, "/")+1:], diskledger.Options{})
	require.ErrorIs(t, err, diskledger.ErrLocked)
	_, err = inspect(nil, dir, nil)
	require.ErrorIs(t, err, diskledger.ErrLocked)
	cmd, lines := start(t, dir)
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), diskledger.ErrLocked.Error())
	require.Error(t, cmd.Wait())
	_, err = l.Propose(ctx, node())
	require.NoError(t, err)
	closed(t, l)
	cmd, lines = start(t, dir)
	require.True(t, lines.Scan())
	require.True(t, strings.HasPrefix(lines.Text(), "p"), lines.Text())
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
}
