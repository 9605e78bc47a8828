//go:build kube

package itest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orbitsched/orbit/kubeorbit"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/grpclog"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// The test binary is the scheduler itself if childScheduler names one; childKubeconfig says where its API server is.
const (
	childScheduler  = "ITEST_SCHEDULER"
	childKubeconfig = "ITEST_KUBECONFIG"
)

// contender is a scheduler that the scenarios run under.
type contender struct {
	name  string // in the table, and for the child process
	pods  string // schedulerName of its pods
	gangs bool   // whether it knows gangs
	run   func(ctx context.Context, kubeconfig string) error
}

var contenders = []contender{
	{"kube-scheduler", "default-scheduler", false, func(ctx context.Context, kubeconfig string) error {
		return runKubeScheduler(ctx, kubeconfig)
	}},
	{"kube-scheduler, gangs", "default-scheduler", true, func(ctx context.Context, kubeconfig string) error {
		return runKubeScheduler(ctx, kubeconfig, "--feature-gates=GenericWorkload=true,GangScheduling=true")
	}},
	{"orbit", "orbit", true, runOrbit},
}

func contenderNamed(name string) (contender, error) {
	for _, c := range contenders {
		if c.name == name {
			return c, nil
		}
	}
	return contender{}, fmt.Errorf("there is no scheduler %q", name)
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childScheduler); name != "" {
		c, err := contenderNamed(name)
		if err == nil {
			err = c.run(context.Background(), os.Getenv(childKubeconfig))
		}
		fmt.Fprintln(os.Stderr, name, "has ended:", err)
		os.Exit(1)
	}
	quiet()
	code := m.Run()
	os.RemoveAll(server.dir)
	os.Exit(code)
}

// quiet leaves out what the API server logs, which is a lot.
func quiet() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetOutput(io.Discard)
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

// runKubeScheduler runs kube-scheduler as it is by default, but without leader election, without a port, and with a client that is
// not slowed down.
func runKubeScheduler(ctx context.Context, kubeconfig string, flags ...string) error {
	config := filepath.Join(filepath.Dir(kubeconfig), "kube-scheduler.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 5000, burst: 5000}
leaderElection: {leaderElect: false}
`, kubeconfig), 0o600); err != nil {
		return err
	}
	command := kubescheduler.NewSchedulerCommand()
	command.SetArgs(append(flags, "--config="+config, "--secure-port=0"))
	return command.ExecuteContext(ctx)
}

func runOrbit(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 5_000, 5_000
	config.AcceptContentTypes, config.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return (&kubeorbit.Scheduler{Client: client}).Run(ctx)
}

// child is a process that runs a scheduler.
type child struct {
	command *exec.Cmd
	began   time.Time
	ended   bool
}

// startChild starts a scheduler in a process of its own, which ends with the test. What it logs is printed if the test fails.
func startChild(t *testing.T, c contender, kubeconfig string) *child {
	executable, err := os.Executable()
	require.NoError(t, err)
	logged, err := os.Create(filepath.Join(t.TempDir(), c.name+".log"))
	require.NoError(t, err)
	p := &child{command: exec.Command(executable), began: time.Now()}
	p.command.Env = append(os.Environ(), childScheduler+"="+c.name, childKubeconfig+"="+kubeconfig)
	p.command.Stdout, p.command.Stderr = logged, logged
	require.NoError(t, p.command.Start())
	t.Cleanup(func() {
		p.kill()
		if text, err := os.ReadFile(logged.Name()); err == nil && t.Failed() {
			t.Logf("%s logged at last:\n%s", c.name, text[max(0, len(text)-4_000):])
		}
		logged.Close()
	})
	return p
}

// kill ends the process by SIGKILL, so it has no chance to clean up, and returns the processor time that it has used.
func (p *child) kill() time.Duration {
	if !p.ended {
		p.ended = true
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
	}
	return p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime()
}

// alive returns an error if the process has ended by itself.
func (p *child) alive() error {
	if p.ended {
		return nil
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.command.Process.Pid) + "/stat")
	if err != nil {
		return err
	}
	if after := string(stat)[strings.LastIndexByte(string(stat), ')')+1:]; strings.HasPrefix(after, " Z") {
		return errors.New("the scheduler has ended")
	}
	return p.command.Process.Signal(syscall.Signal(0))
}
