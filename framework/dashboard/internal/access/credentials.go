package access

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/waybill-go/waybill/framework/settings"
)

// users are the users who log in with a password.
//
// Each user has a proof of the password: a keyed hash, which is fast to compare and useless
// outside this process. A plain password has its proof from the start, a bcrypt hash from the first
// login on. If a password does not match the proof, bcrypt compares it. Unknown names are compared
// by bcrypt, too, so that the time of an answer does not reveal which names exist, as long as all
// hashes have the same cost.
type users struct {
	key      []byte
	byName   map[string]*user
	stranger *user
	attempts *attempts
	// comparing limits how many bcrypt comparisons run at once, since each takes a whole core.
	comparing chan struct{}
}

// compareTime limits how long a login waits for the comparisons of others.
const compareTime = 5 * time.Second

type user struct {
	User
	hash  []byte // by bcrypt; a hash that matches no password if the user's password is plain
	proof atomic.Pointer[[sha256.Size]byte]
}

func newUsers(logins map[string]settings.Login, a *attempts) (*users, error) {
	u := &users{key: random(), byName: make(map[string]*user, len(logins)), attempts: a, comparing: make(chan struct{}, 1)}
	if len(logins) == 0 {
		return u, nil
	}
	cost := 0 // the highest cost of all hashes
	for name, l := range logins {
		its := &user{User: User{Name: name, Role: l.Role}}
		if strings.HasPrefix(l.Password, "$2") {
			its.hash = []byte(l.Password)
			of, err := bcrypt.Cost(its.hash)
			if err != nil {
				return nil, err
			}
			cost = max(cost, of)
		} else {
			proof := u.proof(name, l.Password)
			its.proof.Store(&proof)
		}
		u.byName[name] = its
	}
	none, err := bcrypt.GenerateFromPassword(random(), cmp.Or(cost, bcrypt.DefaultCost))
	if err != nil {
		return nil, err
	}
	u.stranger = &user{hash: none}
	for _, its := range u.byName {
		if its.hash == nil {
			its.hash = none
		}
	}
	return u, nil
}

// proof returns the keyed hash of a name and a password.
func (u *users) proof(name, password string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, u.key)
	h.Write([]byte(name + "\x00" + password))
	h.Sum(sum[:0])
	return sum
}

// user authenticates the name and the password of a request. A browser that has logged in with
// them before has a cookie that says so: it is exempt from the limit of failed logins.
func (u *users) user(r *http.Request, from netip.Addr, name, password string) (User, error) {
	if len(u.byName) == 0 {
		return User{}, refuse(http.StatusUnauthorized, "no users are configured")
	}
	its, known := u.byName[name]
	if !known {
		its = u.stranger
	}
	proof := u.proof(name, password)
	remembered := u.remembered(proof)
	if c, err := r.Cookie(cookieName); err == nil && hmac.Equal([]byte(c.Value), []byte(remembered)) && its.proved(proof) {
		return its.User, nil
	}
	succeeded, err := u.attempts.begin(from, name)
	if err != nil {
		return User{}, err
	}
	switch right, err := u.compare(r.Context(), its, proof, password); {
	case err != nil:
		succeeded() // nothing was learned
		return User{}, err
	case right:
		succeeded()
		user := its.User
		user.remembered = remembered
		return user, nil
	}
	cause := errors.New("a wrong name")
	if known { // do not log an unknown name: it may be a password in the wrong field
		cause = fmt.Errorf("a wrong password for %q", name)
	}
	return User{}, &refusal{status: http.StatusUnauthorized, text: "the name or the password is wrong", cause: cause, challenge: basicChallenge}
}

// compare reports whether a password is that of a user. It fails if it cannot find out.
func (u *users) compare(ctx context.Context, its *user, proof [sha256.Size]byte, password string) (bool, error) {
	if its.proved(proof) {
		return true, nil
	}
	timer := time.NewTimer(compareTime)
	defer timer.Stop()
	select {
	case u.comparing <- struct{}{}:
		defer func() { <-u.comparing }()
	case <-timer.C:
		return false, &refusal{status: http.StatusServiceUnavailable, text: "too many logins at once: try again in a moment", after: time.Second, quiet: true}
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if its.proved(proof) { // by a simultaneous request
		return true, nil
	}
	if bcrypt.CompareHashAndPassword(its.hash, []byte(password)) != nil {
		return false, nil
	}
	its.proof.Store(&proof)
	return true, nil
}

// proved reports whether a proof is that of the user's password.
func (its *user) proved(proof [sha256.Size]byte) bool {
	proved := its.proof.Load()
	return proved != nil && hmac.Equal(proved[:], proof[:])
}

// cookieName is the cookie of a browser that has logged in. It is not a credential: the password is
// still needed.
const cookieName = "waybill-login"

// remembered returns the cookie's value for a name and a password.
func (u *users) remembered(proof [sha256.Size]byte) string {
	h := hmac.New(sha256.New, u.key)
	h.Write([]byte("cookie\x00"))
	h.Write(proof[:])
	return hex.EncodeToString(h.Sum(nil))
}

// remember gives a browser the cookie of its login.
func (u User) remember(w http.ResponseWriter, r *http.Request) {
	if u.remembered == "" {
		return
	}
	secure := r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" // the sender can only spoil its own cookie
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: u.remembered, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode})
}

// tokens are the tokens that programs send. They are too long to be guessed, so failures are not
// limited: a guesser cannot lock out programs behind the same address.
type tokens []token

type token struct {
	User
	sum [sha256.Size]byte
}

func newTokens(configured map[string]settings.Token) (t tokens) {
	for name, c := range configured {
		t = append(t, token{User{Name: name, Role: c.Role}, sha256.Sum256([]byte(c.Token))})
	}
	return t
}

// user authenticates a token.
func (t tokens) user(secret string) (User, error) {
	if len(t) == 0 {
		return User{}, refuse(http.StatusUnauthorized, "no tokens are configured")
	}
	sum, found := sha256.Sum256([]byte(secret)), User{}
	for _, its := range t {
		if subtle.ConstantTimeCompare(sum[:], its.sum[:]) == 1 {
			found = its.User
		}
	}
	if found.Role == "" {
		return User{}, &refusal{status: http.StatusUnauthorized, text: "the token is wrong", challenge: bearerChallenge}
	}
	return found, nil
}

func random() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}
