//go:build kube

package itest

import (
	"flag"
	"os"
	"os/signal"
	"testing"

	"github.com/stretchr/testify/require"
)

var serveFlag = flag.String("serve", "", "file for the kubeconfig of a cluster that TestServe keeps until it is interrupted")

// TestServe is a cluster to try a scheduler on, where there is no other: an API server, nodes (-nodes) and stand-ins for their kubelets.
// It is skipped without -serve.
func TestServe(t *testing.T) {
	if *serveFlag == "" {
		t.Skip("no -serve FILE")
	}
	c := newCluster(t, *nodesFlag)
	config, err := os.ReadFile(c.kubeconfig)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(*serveFlag, config, 0o600))
	t.Logf("%d nodes; the kubeconfig is %s; interrupt to end", c.nodes, *serveFlag)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	<-interrupted
}
