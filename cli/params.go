package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Params hands a job its parameters. Each becomes a flag --NAME and an
// environment variable WEIR_NAME, in capitals and with _ for -; a flag wins.
type Params struct {
	declared []*param
	values   map[string]string // nil while the parameters are being learned
	lenient  bool              // for a verb that runs nothing: what is needed may be missing
	guess    string            // lenient: what stands for it
	missing  []string
	errs     []error
}

type param struct {
	name, fallback, help string
	kind                 string // of value, for the help text
	required             bool
}

// Need declares a parameter without a default. It is empty while the parameters
// are learned. For a verb that only looks at the job or its store it may be
// missing, and is then a text that stands for it.
func (p *Params) Need(name, help string) string {
	return p.declare(&param{name: name, help: help, kind: "string", required: true})
}

// String declares a parameter.
func (p *Params) String(name, fallback, help string) string {
	return p.declare(&param{name: name, fallback: fallback, help: help, kind: "string"})
}

// Choice declares a parameter with a closed set of values.
func (p *Params) Choice(name, fallback string, values []string, help string) string {
	kind := strings.Join(values, "|")
	v := p.declare(&param{name: name, fallback: fallback, help: help, kind: kind})
	if !slices.Contains(values, v) {
		p.bad(name, v, errors.New("one of "+strings.Join(values, ", ")))
		return fallback
	}
	return v
}

// Int declares a whole number.
func (p *Params) Int(name string, fallback int64, help string) int64 {
	v := p.declare(&param{name: name, fallback: strconv.FormatInt(fallback, 10), help: help, kind: "int"})
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		p.bad(name, v, errors.New("a whole number"))
	}
	return n
}

// Bool declares a switch.
func (p *Params) Bool(name string, fallback bool, help string) bool {
	v := p.declare(&param{name: name, fallback: strconv.FormatBool(fallback), help: help, kind: "bool"})
	b, err := strconv.ParseBool(v)
	if err != nil {
		p.bad(name, v, errors.New("true or false"))
	}
	return b
}

// Duration declares a length of time, written as 30s, 10m or 1h; "0" is zero.
func (p *Params) Duration(name string, fallback time.Duration, help string) time.Duration {
	v := p.declare(&param{name: name, fallback: fallback.String(), help: help, kind: "duration"})
	d, err := time.ParseDuration(v)
	if err != nil {
		p.bad(name, v, errors.New("a length of time such as 500ms, 30s, 10m or 1h"))
	}
	return d
}

// Bad says that a parameter that was declared has a wrong value, by a rule that only
// the job knows. want says what it must be: "one of red, blue".
func (p *Params) Bad(name, value string, want error) {
	if !slices.Contains(p.missing, name) { // then the value is made up
		p.bad(name, value, want)
	}
}

func (p *Params) declare(d *param) string {
	for _, other := range p.declared {
		if other.name == d.name {
			p.errs = append(p.errs, fmt.Errorf("the job declares the parameter --%s twice", d.name))
		}
	}
	p.declared = append(p.declared, d)
	if v, ok := p.values[d.name]; ok {
		return v
	}
	switch {
	case !d.required || p.values == nil:
	case p.lenient:
		p.missing = append(p.missing, d.name)
		return p.guess
	default:
		p.errs = append(p.errs, fmt.Errorf("--%s (or %s) is missing: %s", d.name, envName(d.name), d.help))
	}
	return d.fallback
}

func (p *Params) bad(name, value string, want error) {
	p.errs = append(p.errs, fmt.Errorf("--%s %q: it must be %w", name, value, want))
}

func envName(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// flags registers the parameters.
func (p *Params) flags(fs *pflag.FlagSet) {
	for _, d := range p.declared {
		if fs.Lookup(d.name) != nil {
			continue // declared twice: an error that comes when the values are taken
		}
		f := fs.VarPF(&text{value: d.fallback, kind: d.kind}, d.name, "", d.help+" ["+envName(d.name)+"]")
		if d.kind == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// given reads the parameters' values back: flags first, then the environment.
func (p *Params) given(fs *pflag.FlagSet, getenv func(string) (string, bool)) map[string]string {
	values := map[string]string{}
	for _, d := range p.declared {
		if f := fs.Lookup(d.name); f != nil && f.Changed {
			values[d.name] = f.Value.String()
		} else if v, ok := getenv(envName(d.name)); ok {
			values[d.name] = v
		}
	}
	return values
}

// text is a flag whose value is parsed by the job's declaration.
type text struct{ value, kind string }

func (t *text) String() string     { return t.value }
func (t *text) Set(v string) error { t.value = v; return nil }
func (t *text) Type() string       { return t.kind }
