package secrets_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/internal/kafkalab"
	"github.com/weirstream/weir/internal/process"
)

// secure is a real broker with two listeners more: one with TLS and logins, one
// with TLS on both sides.
type secure struct {
	*kafkalab.Cluster
	logins, certificates string // their addresses
	authority            *authority
}

// startSecure starts the broker. On the plain listener everybody is a superuser;
// of the others ada and the certificate "client" are, and eve may do nothing.
func startSecure(t *testing.T) *secure {
	t.Helper()
	kafkalab.Need(t)
	kafkalab.NeedKcat(t)
	a := newAuthority(t)
	a.both("broker")
	a.both("client")
	port := freePorts(t, 4)
	at := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port+i)) }
	s := &secure{logins: at(2), certificates: at(3), authority: a}
	listener := func(name string, settings ...string) (all []string) {
		for _, line := range settings {
			all = append(all, "listener.name."+name+"."+line)
		}
		return all
	}
	jaas := func(module, options string) string {
		// A backslash is an escape in the options and in the file that they are in.
		return "sasl.jaas.config=org.apache.kafka.common.security." + module + " required " + strings.ReplaceAll(options, `\`, `\\`) + ";"
	}
	settings := []string{
		fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://%s,SASL_SSL://%s,SSL://%s", at(0), at(1), at(2), at(3)),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://%s,SASL_SSL://%s,SSL://%s", at(0), at(2), at(3)),
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + a.file("broker.both.pem"),
		"ssl.truststore.type=PEM", "ssl.truststore.location=" + a.file("ca.pem"),
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:ANONYMOUS;User:ada;User:CN=client",
	}
	settings = append(settings, listener("ssl", "ssl.client.auth=required")...)
	settings = append(settings, listener("sasl_ssl",
		"plain."+jaas("plain.PlainLoginModule", fmt.Sprintf("user_ada=%q user_eve=%q", canary, other)),
		"scram-sha-256."+jaas("scram.ScramLoginModule", ""),
		"scram-sha-512."+jaas("scram.ScramLoginModule", ""),
		"oauthbearer."+jaas("oauthbearer.OAuthBearerLoginModule", `unsecuredLoginStringClaim_sub="broker"`))...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var err error
	if s.Cluster, err = kafkalab.Start(ctx, kafkalab.Options{Dir: filepath.Join(t.TempDir(), "kafka"), Port: port, Settings: settings}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
	return s
}

// freePorts returns the first of n ports in a row that are free now.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		port, free := 23000+rand.IntN(9000), true
		for i := 0; i < n && free; i++ {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+i)))
			if free = err == nil; free {
				free = l.Close() == nil
			}
		}
		if free {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

// scramUsers makes ada's passwords, which a broker keeps in its metadata.
func scramUsers(o *outsider) {
	o.t.Helper()
	for _, user := range []struct{ name, password string }{{"ada", canary}, {"eve", other}} {
		for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
			done, err := kadm.NewClient(o.cl).AlterUserSCRAMs(o.within(), nil, []kadm.UpsertSCRAM{{User: user.name, Mechanism: m, Iterations: 4096, Password: user.password}})
			if err == nil {
				err = done.Error()
			}
			if err != nil {
				o.t.Fatal(err)
			}
		}
	}
}

// unsecured is a token that says who somebody is, without any proof.
func unsecured(subject string) string {
	now := time.Now()
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, now.Unix(), now.Add(time.Hour).Unix())) + "."
}

// The job logs in to a real broker in every way that there is, gets the right
// counts committed, and is told in words of its own what is wrong where it can't.
func TestLoginsOnRealBroker(t *testing.T) {
	b := startSecure(t)
	o := newOutsider(t, b.Brokers())
	scramUsers(o)
	keep := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(keep, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	adas, eves, stranger := unsecured("ada"), unsecured("eve"), strings.ReplaceAll(unsecured("ada"), ".", "-")
	password, badPassword := write("right", canary), write("wrong", wrong)
	ca := b.authority.file("ca.pem")
	sasl := func(mechanism, user, file string) []string {
		return []string{"--brokers", b.logins, "--tls-ca", ca, "--sasl", mechanism, "--sasl-user", user, "--sasl-password-file", file}
	}
	bearer := func(token string) []string {
		return []string{"--brokers", b.logins, "--tls-ca", ca, "--sasl", "oauthbearer", "--sasl-token-file", write(fmt.Sprintf("token-%x", sha256.Sum256([]byte(token))), token)}
	}
	const refused, ok = 11, 0
	for i, way := range []struct {
		name  string
		args  []string
		code  int
		says  []string
		grepd string
	}{
		{name: "plain", args: sasl("plain", "ada", password)},
		{name: "scram-sha-256", args: sasl("scram-sha-256", "ada", password)},
		{name: "scram-sha-512", args: sasl("scram-sha-512", "ada", password)},
		{name: "oauthbearer", args: bearer(adas), grepd: adas},
		{name: "mutual TLS", args: []string{"--brokers", b.certificates, "--tls-ca", ca, "--tls-cert", b.authority.file("client.pem"), "--tls-key", b.authority.file("client.key")}},

		{name: "plain, wrong password", args: sasl("plain", "ada", badPassword), code: refused,
			says: []string{"SASL_AUTHENTICATION_FAILED", `the login of user "ada" by SASL PLAIN`, "check the user and the password", b.logins}},
		{name: "scram, wrong password", args: sasl("scram-sha-256", "ada", badPassword), code: refused, says: []string{"SASL_AUTHENTICATION_FAILED", "SCRAM-SHA-256"}},
		{name: "scram, nobody", args: sasl("scram-sha-512", "nobody", password), code: refused, says: []string{"SASL_AUTHENTICATION_FAILED", `user "nobody"`}},
		{name: "a broken token", args: bearer(stranger), code: refused, says: []string{"SASL_AUTHENTICATION_FAILED", "doesn't accept the token"}, grepd: stranger},
		{name: "a user without rights", args: sasl("plain", "eve", write("eve", other)), code: refused, says: []string{`user "eve"`, "AUTHORIZATION_FAILED", "allow "}},
		{name: "a token without rights", args: bearer(eves), code: refused, says: []string{"AUTHORIZATION_FAILED", "allow "}, grepd: eves},
		{name: "no certificate", args: []string{"--brokers", b.certificates, "--tls-ca", ca}, code: refused, says: []string{"bad certificate", "--tls-cert"}},
		{name: "an authority that nobody knows", args: []string{"--brokers", b.logins, "--tls"}, code: refused, says: []string{"unknown authority", "--tls-ca"}},
	} {
		t.Run(way.name, func(t *testing.T) {
			input, output := fmt.Sprintf("clicks-%d", i), fmt.Sprintf("counts-%d", i)
			o := newOutsider(t, b.Brokers())
			o.create(input)
			o.clicks(input, "ad-1", "ad-2", "ad-1")
			p := &place{t: t, dir: t.TempDir(), args: append([]string{"--input", input, "--output", output}, way.args...)}
			p.args = append(p.args, "--state", p.state())
			job := p.run("--stop-at-end")
			if code := job.End(); code != way.code {
				t.Fatalf("exit code %d, want %d:\n%s", code, way.code, job.Said())
			}
			for _, text := range way.says {
				if !strings.Contains(job.Said(), text) {
					t.Errorf("it didn't say %q, but:\n%s", text, job.Said())
				}
			}
			_, doctor := p.verb("doctor")
			if way.code == ok {
				read(t, b, output, map[string]int{"ad-1": 2, "ad-2": 1})
				p.note("topics", o.everything())
			} else if !strings.Contains(doctor.Said(), "problem") {
				t.Errorf("doctor found no problem:\n%s", doctor.Said())
			}
			secrets := []string{canary, wrong, other}
			if way.grepd != "" {
				secrets = append(secrets, way.grepd)
			}
			grep(t, p.dir, 4, secrets...)
		})
	}
}

// read reads the counts back with a client that shares no code with the job's, and
// through the listener that wants a login.
func read(t *testing.T, b *secure, topic string, want map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Deadline)
	defer cancel()
	all, err := kafkalab.Kcat{Brokers: []string{b.logins}, Settings: []string{"security.protocol=sasl_ssl", "sasl.mechanism=PLAIN",
		"sasl.username=ada", "sasl.password=" + canary, "ssl.ca.location=" + b.authority.file("ca.pem")}}.All(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, r := range all {
		ad, _, _ := strings.Cut(string(r.Key), "|")
		_, text, _ := strings.Cut(string(r.Value), `"clicks":`)
		if got[ad], err = strconv.Atoi(strings.TrimSuffix(text, "}")); err != nil {
			t.Fatalf("%s: %v", r.Value, err)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}
