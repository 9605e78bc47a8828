package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/crew"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
)

func TestMain(m *testing.M) {
	process.Main(map[string]process.Role{cluster.Role: cluster.Serve, crew.Role: crew.Serve})
	os.Exit(m.Run())
}

// play runs the program, and returns what it prints and the last line of that.
func play(t *testing.T, args ...string) (text, last string) {
	o, err := parse(args, &bytes.Buffer{})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out), "%s", &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return out.String(), lines[len(lines)-1]
}

// Everything is placed once: on an etcd of the program's own, of which a member is killed too, and on an existing one, in
// which no key is left.
func TestEtcd(t *testing.T) {
	_, last := play(t, "-nodes", "20", "-capsules", "400", "-kills", "3")
	require.Equal(t, "etcd: placed 400 of 400, doubled 0, lost 0, kills 3, verify: ok", last)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	defer c.Close()
	text, last := play(t, "-endpoint", c.Endpoints()[0], "-nodes", "20", "-capsules", "200")
	require.Equal(t, "etcd: placed 200 of 200, doubled 0, lost 0, kills 1, verify: ok", last)
	require.Regexp(t, `killed the process "right"`, text)
	client, err := c.Client()
	require.NoError(t, err)
	defer client.Close()
	left, err := client.Get(ctx, "\x00", clientv3.WithFromKey())
	require.NoError(t, err)
	require.Zero(t, left.Count)
}

// An interrupt ends it soon.
func TestInterrupt(t *testing.T) {
	o, err := parse([]string{"-capsules", "100000", "-nodes", "1000"}, &bytes.Buffer{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	start := time.Now()
	require.ErrorIs(t, run(ctx, o, &bytes.Buffer{}), context.DeadlineExceeded)
	require.Less(t, time.Since(start), time.Minute)
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"-nodes", "0"}, {"-capsules", "1"}, {"-kills", "-1"}, {"-members", "2"}, {"-endpoint", "x", "-members", "3"}, {"more"}, {"-what"}} {
		_, err := parse(args, &bytes.Buffer{})
		require.Error(t, err, "%v", args)
	}
}
