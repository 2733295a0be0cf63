package secrets_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	canary = `c4n4ry/+"<pass> word` // of the job
	wrong  = "wr0ng-c4n4ry-of-another"
	token  = "t0k3n.c4n4ry.of-the-job"
	other  = "0ther-password-of-the-outsider"
)

// fake is a kfake cluster that can go away and come back.
type fake struct {
	t    *testing.T
	opts []kfake.Opt
	up   *kfake.Cluster
	at   []string
}

func newFake(t *testing.T, a *authority) *fake {
	t.Helper()
	a.both("broker")
	pair, err := tls.LoadX509KeyPair(a.file("broker.pem"), a.file("broker.key"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, opts: []kfake.Opt{kfake.NumBrokers(2), kfake.MaxVersions(kversion.V4_4_0()), kfake.DataDir(t.TempDir()), kfake.EnableSASL(),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}),
		kfake.Superuser("PLAIN", "ada", canary), kfake.Superuser("SCRAM-SHA-256", "ada", canary), kfake.Superuser("SCRAM-SHA-512", "ada", canary),
		kfake.Superuser("SCRAM-SHA-256", "outsider", other)}}
	f.start()
	t.Cleanup(func() { f.up.Close() })
	return f
}

func (f *fake) start() {
	f.t.Helper()
	var err error
	if f.up, err = kfake.NewCluster(f.opts...); err != nil {
		f.t.Fatal(err)
	}
	if f.at != nil {
		return
	}
	f.at = f.up.ListenAddrs()
	var ports []int
	for _, a := range f.at {
		_, port, _ := net.SplitHostPort(a)
		n, err := strconv.Atoi(port)
		if err != nil {
			f.t.Fatal(err)
		}
		ports = append(ports, n)
	}
	f.opts = append(f.opts, kfake.Ports(ports...))
}

// A job that logs in to a cluster with TLS, is killed, loses its brokers, is given
// a wrong password, and is looked at with every verb, never tells its password.
func TestSecretsOnFake(t *testing.T) {
	a := newAuthority(t)
	f := newFake(t, a)
	keep := t.TempDir() // of what is meant to hold the secrets
	write := func(name, text string) string {
		path := filepath.Join(keep, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	brokers := strings.Join(f.at, ",")
	for i, way := range []struct {
		name         string
		right, wrong []string
		env          []string
		wrongEnv     []string
		away         bool // the brokers go away meanwhile
	}{
		{name: "environment",
			right: []string{"--brokers", brokers, "--tls-ca", a.file("ca.pem"), "--sasl", "plain", "--sasl-user", "ada"},
			wrong: []string{"--brokers", brokers, "--tls-ca", a.file("ca.pem"), "--sasl", "plain", "--sasl-user", "ada"},
			env:   []string{"WEIR_SASL_PASSWORD=" + canary}, wrongEnv: []string{"WEIR_SASL_PASSWORD=" + wrong}},
		{name: "file",
			right: []string{"--brokers", brokers, "--tls-ca", a.file("ca.pem"), "--sasl", "scram-sha-256", "--sasl-user", "ada", "--sasl-password-file", write("right", canary+"\n")},
			wrong: []string{"--brokers", brokers, "--tls-ca", a.file("ca.pem"), "--sasl", "scram-sha-256", "--sasl-user", "ada", "--sasl-password-file", write("wrong", wrong)}},
		{name: "config", away: true,
			right: []string{"--kafka-config", write("right.conf", "brokers="+brokers+"\ntls-ca="+a.file("ca.pem")+"\nsasl=scram-sha-512\nsasl-user=ada\nsasl-password="+canary+"\n")},
			wrong: []string{"--kafka-config", write("wrong.conf", "brokers="+brokers+"\ntls-ca="+a.file("ca.pem")+"\nsasl=scram-sha-512\nsasl-user=ada\nsasl-password="+wrong+"\n")}},
	} {
		t.Run(way.name, func(t *testing.T) {
			input, output := fmt.Sprintf("clicks-%d", i), fmt.Sprintf("counts-%d", i)
			o := newOutsider(t, f.at, kgo.DialTLSConfig(&tls.Config{RootCAs: a.pool()}),
				kgo.SASL(scram.Auth{User: "outsider", Pass: other}.AsSha256Mechanism()))
			o.create(input)
			job := []string{"--input", input, "--output", output}
			p := &place{t: t, dir: t.TempDir(), args: append(append(job, way.right...), "--state", ""), env: way.env}
			p.args[len(p.args)-1] = p.state()
			before(p)
			life(t, p, f, o, input, output, way.away)
			after(p)
			denied := &place{t: t, dir: t.TempDir(), args: append(append(job, way.wrong...), "--state", p.state()), env: way.wrongEnv}
			w := denied.run("--log-format", "json")
			w.says("waiting") // kfake hangs up; a broker says why
			if code := w.ended(syscall.SIGTERM); code != 0 {
				t.Errorf("stopped while it waited: exit code %d, want 0:\n%s", code, w.Said())
			}
			_, _ = denied.verb("doctor")
			p.note("topics", o.everything())
			grep(t, p.dir, 40, canary, wrong, other)
			grep(t, denied.dir, 4, canary, wrong, other)
		})
	}
}

// before looks at a job that has never run.
func before(p *place) {
	for _, verb := range []string{"explain", "plan", "run --help", "doctor", "doctor --json", "checkpoints ls"} {
		_, _ = p.verb(verb)
	}
}

// life runs a job through what can befall it.
func life(t *testing.T, p *place, f *fake, o *outsider, input, output string, away bool) {
	committed := int64(0)
	more := func(job *running, ad string) {
		t.Helper()
		o.clicks(input, ad)
		job.Poll("a count of "+ad, func() bool { n := o.end(output); more := n > committed; committed = max(n, committed); return more })
	}
	job := p.run()
	more(job, "ad-1")
	job.pages(p)
	if code := job.ended(syscall.SIGKILL); code != -1 {
		t.Fatalf("exit code %d after a kill", code)
	}
	job = p.run("--log-format", "json")
	more(job, "ad-2")
	if away {
		f.up.Close()
		job.says("refused")
		f.start()
		more(job, "ad-3")
	}
	job.pages(p)
	if code := job.ended(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d, want 0:\n%s", code, job.Said())
	}
}

// after looks at a job that has run, with all that its store tells.
func after(p *place) {
	p.t.Helper()
	for _, verb := range []string{"explain", "plan", "doctor", "doctor --json", "checkpoints ls --json"} {
		if code, c := p.verb(verb); code != 0 && !strings.HasPrefix(verb, "doctor") {
			p.t.Errorf("%s: exit code %d:\n%s", verb, code, c.Said())
		}
	}
	newest := ""
	entries, err := os.ReadDir(filepath.Join(p.state(), "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range entries {
		newest = strings.TrimLeft(strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())), "0")
	}
	for _, verb := range []string{"checkpoints show " + newest, "checkpoints export " + newest} {
		_, _ = p.verb(verb)
	}
}
