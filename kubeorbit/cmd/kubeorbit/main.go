// Command kubeorbit schedules the pods of a Kubernetes cluster that name it in spec.schedulerName.
//
//	go run ./cmd/kubeorbit -kubeconfig ~/.kube/config
//
// In a cluster, without -kubeconfig, it uses the account of its pod; see config/.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/inspect"
	"github.com/orbitsched/orbit/kubeorbit"
	"github.com/orbitsched/orbit/promorbit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// options are the flags.
type options struct {
	kubeconfig, configuration, listen, lease, namespace string
	elect, version                                      bool
	qps                                                 float64
}

func main() {
	o := options{}
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the address and the credentials of the API server; empty: the account of this pod")
	flag.StringVar(&o.configuration, "config", "", "file with queues, further engines and the scheduler's name (kubeorbit.Configuration); empty: none")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:10290", "address of /metrics, /healthz, /readyz and the live page /orbit/; empty: none")
	flag.BoolVar(&o.elect, "leader-elect", false, "wait until no other replica schedules")
	flag.StringVar(&o.lease, "lease", "kubeorbit", "name of the lease by which replicas elect a leader")
	flag.StringVar(&o.namespace, "namespace", "kube-system", "namespace of the lease")
	flag.Float64Var(&o.qps, "qps", 1000, "requests a second to the API server at most")
	flag.BoolVar(&o.version, "version", false, "say the version and end")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "kubeorbit: no argument is taken, but %q: it has to be a flag\n", flag.Arg(0))
		os.Exit(2)
	}
	if o.version {
		fmt.Println(version())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o)
	if stop(); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "kubeorbit:", strings.TrimPrefix(err.Error(), "kubeorbit: "))
		os.Exit(1)
	}
}

// run schedules until the context ends.
func run(ctx context.Context, o *options) error {
	s := &kubeorbit.Scheduler{}
	if o.configuration != "" {
		text, err := os.ReadFile(o.configuration)
		if err != nil {
			return fmt.Errorf("-config: %w", err)
		}
		c, err := kubeorbit.ReadConfiguration(text)
		if err != nil {
			return fmt.Errorf("-config: %s: %w", o.configuration, err)
		}
		if err := c.Configure(s); err != nil {
			return fmt.Errorf("-config: %s: %w", o.configuration, err)
		}
	}
	config, err := o.client()
	if err != nil {
		return err
	}
	config.QPS, config.Burst, config.UserAgent = float32(o.qps), int(o.qps), "kubeorbit"
	if s.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	pages := &pages{}
	s.OnStart, s.OnStatus = pages.start, pages.say
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.listen != "" {
		listener, err := net.Listen("tcp", o.listen)
		if err != nil {
			return fmt.Errorf("%w; give another -listen", err)
		}
		slog.Info("kubeorbit: serving", "page", "http://"+listener.Addr().String()+"/orbit/")
		server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
		defer func() { _ = server.Close() }()
		go func() { cancel(server.Serve(listener)) }()
	}
	if !o.elect {
		err := s.Run(ctx)
		return errors.Join(o.explained(config.Host, err), context.Cause(ctx))
	}
	return o.explained(config.Host, elected(ctx, o, s))
}

// explained says of an error of the API server which server it is, who asks, and what to do.
func (o *options) explained(host string, err error) error {
	who := "the account of this pod"
	if o.kubeconfig != "" {
		who = "-kubeconfig " + o.kubeconfig
	}
	var unanswered *url.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server %s refuses the credentials of %s (401); have they expired? %w", host, who, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the API server %s does not let %s do this (403); config/base has the rules that it needs: %w", host, who, err)
	case errors.As(err, &unanswered):
		return fmt.Errorf("the API server %s of %s cannot be reached; is the address right, and does it run? %w", host, who, err)
	}
	return err
}

// version says which version of this program runs, as its build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "kubeorbit, built without a version"
	}
	parts := []string{"kubeorbit " + info.Main.Version}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			parts = append(parts, "revision "+s.Value)
		}
	}
	return strings.Join(append(parts, info.GoVersion), ", ")
}

// client returns how the API server is reached.
func (o *options) client() (*rest.Config, error) {
	if o.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("-kubeconfig: %w", err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("there is no account of a pod here, so give -kubeconfig: %w", err)
	}
	return config, nil
}

// elected schedules once this replica leads, until it does not any more. The process then ends, and starts anew as a follower.
func elected(ctx context.Context, o *options, s *kubeorbit.Scheduler) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.namespace, Name: o.lease},
		Client:     s.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + rand.Text()}, // replicas on the network of a host have one name
	}
	failed := errors.New("the lease was lost")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, // not released at the end: a bind may be under way
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { cancel(s.Run(ctx)) },
			OnStoppedLeading: func() { cancel(failed) },
			OnNewLeader:      func(id string) { slog.Info("kubeorbit: the leader", "is", id) },
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return context.Cause(ctx)
}

// pages serves metrics, health and the live page. Before the scheduler has started, a replica that waits is healthy and ready, and
// has neither metrics nor a page.
type pages struct {
	mux    atomic.Pointer[http.ServeMux]
	status atomic.Pointer[kubeorbit.Status]
}

// say takes what the scheduler says of itself.
func (p *pages) say(s kubeorbit.Status) { p.status.Store(&s) }

// said returns what the scheduler has said of itself last.
func (p *pages) said() kubeorbit.Status {
	if s := p.status.Load(); s != nil {
		return *s
	}
	return kubeorbit.Status{}
}

// start serves what a scheduler does.
func (p *pages) start(ledger *orbit.MemoryLedger, population *orbit.Population) {
	page := &inspect.Handler{Ledger: ledger, Zone: corev1.LabelTopologyZone, Find: kubeorbit.Find, Engines: population.Engines}
	metrics, registry := &promorbit.Engines{Engines: population.Engines}, prometheus.NewRegistry()
	registry.MustRegister(metrics, &promorbit.Ledger{Ledger: ledger, Engines: population.Engines}, p)
	for _, e := range population.Engines {
		e.OnRound = func(r orbit.Round) {
			page.Round(r)
			metrics.Round(r)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/orbit/", page)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	p.mux.Store(mux)
}

var (
	descWaiting = prometheus.NewDesc("kubeorbit_waiting_pods", "Pods that wait to be placed, by the reason in a word (kubeorbit.Status).", []string{"reason"}, nil)
	descLost    = prometheus.NewDesc("kubeorbit_api_server_lost", "1 while lists or watches of the API server fail for long, so that what has changed is not known.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (p *pages) Describe(ch chan<- *prometheus.Desc) {
	ch <- descWaiting
	ch <- descLost
}

// Collect implements [prometheus.Collector].
func (p *pages) Collect(ch chan<- prometheus.Metric) {
	s, lost := p.said(), 0.0
	if s.Lost != nil {
		lost = 1
	}
	ch <- prometheus.MustNewConstMetric(descLost, prometheus.GaugeValue, lost)
	for reason, n := range s.Waiting {
		ch <- prometheus.MustNewConstMetric(descWaiting, prometheus.GaugeValue, float64(n), reason)
	}
}

// ServeHTTP implements [http.Handler]. A restart does not bring a lost API server back, so only /readyz fails then.
func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lost := p.said().Lost
	switch mux := p.mux.Load(); {
	case r.URL.Path == "/readyz" && lost != nil:
		http.Error(w, fmt.Sprintf("the API server is lost: %v", lost), http.StatusServiceUnavailable)
	case r.URL.Path == "/healthz" && lost != nil:
		fmt.Fprintf(w, "ok, but the API server is lost: %v\n", lost)
	case r.URL.Path == "/readyz" || r.URL.Path == "/healthz":
		fmt.Fprintln(w, "ok")
	case mux != nil:
		mux.ServeHTTP(w, r)
	default:
		http.Error(w, "this replica reads the cluster, or another one schedules", http.StatusServiceUnavailable)
	}
}
