package main

import (
	"testing"

	"github.com/orbitsched/orbit/internal/harness"
)

// The program of the page on two processes compiles. It is tested here because this module has all that it imports.
func TestProductionPage(t *testing.T) { harness.Page(t, "../../docs/production.md", productionImports) }

const productionImports = `package main

import (
	"context"
	"crypto/rand"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/inspect"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/pgledger"
	"github.com/orbitsched/orbit/promorbit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	name, _ := os.Hostname()
	log.Print(control(ctx, os.Getenv("ORBIT_POSTGRES"), name))
}

`
