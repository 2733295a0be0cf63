package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/weirstream/weir"
	"github.com/weirstream/weir/connector/kafka/kafkatest"
)

// authority signs certificates, and keeps them in files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, "ca")
	return a
}

// sign makes NAME.pem and NAME.key.
func (a *authority) sign(c *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	c.SerialNumber, c.Subject = big.NewInt(a.n), pkix.Name{CommonName: name}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	c.NotBefore = c.NotAfter.Add(-24 * time.Hour)
	by, with := a.cert, a.key
	if by == nil {
		by, with = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, with)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a *authority) write(name string, b []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), b, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// server signs a broker's certificate and returns its TLS config.
func (a *authority) server(name string, c *x509.Certificate) *tls.Config {
	a.t.Helper()
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	a.sign(c, name)
	pair, err := tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key"))
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func loopbackCert() *x509.Certificate {
	return &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
}

func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, "client")
	theirs.sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, "client")
	byAddress := ours.server("address", loopbackCert())
	byName := ours.server("name", &x509.Certificate{DNSNames: []string{"kafka.internal"}})
	expired := loopbackCert()
	expired.NotAfter = time.Now().Add(-time.Hour)
	old := ours.server("old", expired)
	both := byAddress.Clone()
	both.ClientAuth, both.ClientCAs = tls.RequireAndVerifyClientCert, ours.pool()
	mine := TLSCertificate(ours.file("client.pem"), ours.file("client.key"))

	for _, tt := range []struct {
		name   string
		server *tls.Config
		opts   []ClusterOption
		want   string // of a refusal
	}{
		{"an authority of one's own", byAddress, []ClusterOption{TLSRoots(ours.file("ca.pem"))}, ""},
		{"the system's authorities", byAddress, []ClusterOption{TLS()}, "unknown authority"},
		{"another authority", byAddress, []ClusterOption{TLSRoots(theirs.file("ca.pem"))}, "unknown authority"},
		{"a certificate for another name", byName, []ClusterOption{TLSRoots(ours.file("ca.pem"))}, "127.0.0.1"},
		{"that name", byName, []ClusterOption{TLSRoots(ours.file("ca.pem")), TLSServerName("kafka.internal")}, ""},
		{"an expired certificate", old, []ClusterOption{TLSRoots(ours.file("ca.pem"))}, "expired"},
		{"both sides", both, []ClusterOption{TLSRoots(ours.file("ca.pem")), mine}, ""},
		{"both sides, one shows nothing", both, []ClusterOption{TLSRoots(ours.file("ca.pem"))}, "certificate required"},
		{"both sides, another authority", both, []ClusterOption{TLSRoots(ours.file("ca.pem")),
			TLSCertificate(theirs.file("client.pem"), theirs.file("client.key"))}, "tls: "},
		{"a config", byName, []ClusterOption{TLSConfig(&tls.Config{RootCAs: ours.pool(), ServerName: "kafka.internal"})}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := kafkatest.NewFake(t, kfake.TLS(tt.server))
			err := askMetadata(t, NewCluster(fake.ListenAddrs(), append(tt.opts, soon())...))
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantText(t, err, tt.want, fake.ListenAddrs()[0])
			if !errors.Is(err, weir.ErrRefused) || temporary(err) {
				t.Errorf("%v: must end the job, and not be waited for", err)
			}
		})
	}
}

// Certificates are renewed under a job that runs.
func TestCertificatesChangeUnderAJob(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	roots := first.file("roots.pem")
	put := func(from string) {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(roots, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(first.file("ca.pem"))
	s := settings{tls: tlsSettings{on: true, roots: roots}}
	dial, err := s.dialer()
	if err != nil {
		t.Fatal(err)
	}
	try := func(fake *kfake.Cluster) error {
		conn, err := dial(t.Context(), "tcp", fake.ListenAddrs()[0])
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	old := kafkatest.NewFake(t, kfake.TLS(first.server("address", loopbackCert())))
	renewed := kafkatest.NewFake(t, kfake.TLS(second.server("address", loopbackCert())))
	if err := try(old); err != nil {
		t.Fatal(err)
	}
	wantText(t, try(renewed), "unknown authority")
	put(second.file("ca.pem"))
	if err := try(renewed); err != nil {
		t.Fatal(err)
	}
	// In the midst of a change the last good ones stay.
	if err := os.WriteFile(roots, []byte("-----BEGIN CERTIF"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := try(renewed); err != nil {
		t.Fatal(err)
	}
}

// A broker with TLS hangs up on a job without it, as one that restarts does:
// nobody can be sure, but it is said.
func TestTLSIsMissing(t *testing.T) {
	fake := kafkatest.NewFake(t, kfake.TLS(newAuthority(t).server("address", loopbackCert())))
	err := askMetadata(t, NewCluster(fake.ListenAddrs(), soon()))
	wantText(t, err, "is TLS missing?", fake.ListenAddrs()[0])
	if !temporary(err) {
		t.Errorf("%v: must be waited for", err)
	}
}

func TestTLSSettings(t *testing.T) {
	ours := newAuthority(t)
	ours.sign(&x509.Certificate{}, "client")
	ours.sign(&x509.Certificate{}, "other")
	ours.write("empty.pem", nil)
	ours.write("store.jks", []byte("\xfe\xed\xfe\xed"))
	for _, tt := range []struct {
		name string
		opts []ClusterOption
		want string
	}{
		{"no such roots", []ClusterOption{TLSRoots(ours.file("none.pem"))}, "none.pem"},
		{"empty roots", []ClusterOption{TLSRoots(ours.file("empty.pem"))}, "holds no certificate in PEM form"},
		{"a Java key store", []ClusterOption{TLSRoots(ours.file("store.jks"))}, "a Java key store must be exported first"},
		{"no key", []ClusterOption{TLSCertificate(ours.file("client.pem"), "")}, "needs both its files"},
		{"no certificate", []ClusterOption{TLSCertificate("", ours.file("client.key"))}, "needs both its files"},
		{"neither", []ClusterOption{TLSCertificate("", "")}, "was given no files"},
		{"another one's key", []ClusterOption{TLSCertificate(ours.file("client.pem"), ours.file("other.key"))}, "does not match"},
		{"no such key", []ClusterOption{TLSCertificate(ours.file("client.pem"), ours.file("none.key"))}, "none.key"},
		{"a certificate for a key", []ClusterOption{TLSCertificate(ours.file("client.pem"), ours.file("client.pem"))}, "client.pem"},
		{"verifies nobody", []ClusterOption{TLSConfig(&tls.Config{InsecureSkipVerify: true})}, "anybody could pose as the broker"},
		{"verifies by itself", []ClusterOption{TLSConfig(&tls.Config{InsecureSkipVerify: true,
			VerifyConnection: func(tls.ConnectionState) error { return nil }})}, ""},
		{"no config", []ClusterOption{TLSConfig(nil)}, "was given none"},
		{"a config and more", []ClusterOption{TLSConfig(&tls.Config{}), TLSRoots(ours.file("ca.pem"))}, "can't be combined"},
	} {
		cl, err := NewCluster([]string{"broker.example.org:9093"}, tt.opts...).client()
		if err == nil {
			cl.Close()
		}
		if tt.want == "" && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.want != "" {
			wantText(t, err, tt.want)
		}
	}
}
