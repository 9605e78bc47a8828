//go:build kube

package itest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// server is the control plane of the test process: it is started by the first test that needs it, and ends with the process.
var server struct {
	once   sync.Once
	dir    string // certificates, keys and etcd's data; TestMain removes it
	config *rest.Config
	err    error
}

// Start returns the configuration of clients of the API server of this process, which it starts if it does not run yet. All tests
// share the server, so each makes its own nodes and namespaces and removes them again.
func Start(t *testing.T) *rest.Config {
	server.once.Do(func() {
		server.config, server.err = startServer()
	})
	require.NoError(t, server.err, "kube-apiserver has to start")
	return rest.CopyConfig(server.config)
}

func startServer() (*rest.Config, error) {
	dir, err := os.MkdirTemp("", "itest")
	if err != nil {
		return nil, err
	}
	server.dir = dir
	etcd, err := startEtcd(filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	token, err := credentials(dir)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := &rest.Config{
		Host: "https://" + listener.Addr().String(), BearerToken: token, QPS: 5_000, Burst: 5_000,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "apiserver.crt")},
	}
	served := make(chan error, 1)
	go func() { served <- serve(listener, dir, etcd) }()
	return config, awaitReady(config, served)
}

func startEtcd(dir string) (string, error) {
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync, config.EnableGRPCGateway = dir, "error", true, false
	local := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.ListenPeerUrls, config.AdvertisePeerUrls = local, local, local
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return "http://" + etcd.Clients[0].Addr().String(), nil
	case err := <-etcd.Err():
		return "", err
	}
}

// credentials writes the key that signs the tokens of service accounts, and the token of an administrator, which it returns.
func credentials(dir string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return "", err
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	token := hex.EncodeToString(random)
	return token, errors.Join(
		os.WriteFile(filepath.Join(dir, "accounts.key"), pem, 0o600),
		os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(token+",admin,admin,system:masters\n"), 0o600))
}

// serve runs kube-apiserver. Of admission only what the scheduling of pods needs is left: no controllers run here that would make the
// service accounts of namespaces, or remove the taints of new nodes.
func serve(listener net.Listener, dir, etcd string) error {
	o, flags := options.NewServerRunOptions(), pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse([]string{
		"--etcd-servers=" + etcd, "--cert-dir=" + dir, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--anonymous-auth=false", "--token-auth-file=" + filepath.Join(dir, "tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://itest", "--service-account-key-file=" + filepath.Join(dir, "accounts.key"),
		"--service-account-signing-key-file=" + filepath.Join(dir, "accounts.key"), "--service-cluster-ip-range=10.0.0.0/16",
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds",
		"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true",
		"--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false", "--profiling=false",
	}); err != nil {
		return err
	}
	o.SecureServing.Listener, o.SecureServing.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	complete, err := o.Complete(context.Background())
	if err != nil {
		return err
	}
	if err := errors.Join(complete.Validate()...); err != nil {
		return err
	}
	return app.Run(context.Background(), complete)
}

// awaitReady returns when the API server is ready. It makes a client for each try, because the server writes its certificate meanwhile.
func awaitReady(config *rest.Config, served <-chan error) error {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		client, err := kubernetes.NewForConfig(config)
		if err == nil {
			_, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
		}
		if err == nil {
			return nil
		}
		select {
		case err := <-served:
			return fmt.Errorf("kube-apiserver ended: %w", err)
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("kube-apiserver is not ready: %w", err)
		}
	}
}

// kubeconfig writes a file by which another process reaches the API server, and returns its path.
func kubeconfig(t *testing.T, config *rest.Config) string {
	ca, err := os.ReadFile(config.CAFile)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"itest": {Server: config.Host, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"itest": {Cluster: "itest", AuthInfo: "admin"}},
		CurrentContext: "itest",
	}, path))
	return path
}
