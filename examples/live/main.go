// Live: a constellation in trouble to look at. 240 nodes in three zones, six engines that work on one ledger, and a minute in
// which all goes wrong: schedulers race, a full cluster gets urgent work, a zone fails, a rack is drained. When work waits
// then, who can say what it waits for? A page shows everything as it happens, why each capsule waits and what would help;
// Prometheus metrics are beside it.
//
//	cd examples/live && go run .              then open http://localhost:8080/
//	cd examples/live && go run . -for 60s     ends by itself
//
// A round of trouble takes a minute, and comes again and again:
//
//	 0 s  two engines place shops at the same time, know nothing of each other, and lose bets
//	15 s  more batch work comes than fits, research borrows the quota that reports do not use, and waits for more; urgent
//	      work takes the room of tasks of lower priority
//	30 s  zone b fails, and with it a third of the nodes; it comes back 12 s later, empty, and breaks the rule that mail is even over zones
//	45 s  a rack is drained, as fast as the budgets of the shops allow, and taken back
//
// Three capsules never fit anywhere: click on explain beside them to see why, and what would help. The numbers that the
// program prints come from the ledger: from its history and, in the last line, from its own recount.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

func main() {
	listen := flag.String("listen", "localhost:8080", "address of the page and of /metrics")
	lasts := flag.Duration("for", 0, "how long to run; 0: until interrupted")
	minute := flag.Duration("minute", time.Minute, "how long one round of trouble takes")
	if flag.Parse(); flag.NArg() > 0 || *minute <= 0 || *lasts < 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if *lasts > 0 {
		time.AfterFunc(*lasts, stop)
	}
	err := run(ctx, *listen, *minute)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

// run shows a cluster until ctx ends, and prints the final counts.
func run(ctx context.Context, listen string, minute time.Duration) error {
	to, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("%w; choose another address with -listen", err)
	}
	c, err := open(ctx, minute)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: c.mux, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(func() { _ = c.page.Close() }) // always nil
	served := make(chan error, 1)
	go func() { served <- server.Serve(to) }()
	fmt.Println(program.Opening(source))
	fmt.Printf("page     http://%s/\nmetrics  http://%s/metrics\n\n", to.Addr(), to.Addr())
	c.live(ctx)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := errors.Join(server.Shutdown(end), ignore(<-served, http.ErrServerClosed)); err != nil {
		return err
	}
	return c.print(end)
}

// ignore returns an error, unless it is the expected one.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
