package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// alone means that the system's certificate authorities are unavailable.
const alone = "WAYBILL_TEST_WITHOUT_ROOTS"

func TestCertificateAuthoritiesAreThereWhereTheSystemHasNone(t *testing.T) {
	t.Parallel()
	if os.Getenv(alone) == "" {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		again.Env = []string{alone + "=1", "SSL_CERT_FILE=/nowhere", "SSL_CERT_DIR=/nowhere"}
		out, err := again.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS")
		return
	}
	found := 0
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		authority, err := x509.ParseCertificate(root.Certificate)
		require.NoError(t, err)
		_, err = authority.Verify(x509.VerifyOptions{CurrentTime: authority.NotBefore.AddDate(0, 0, 1), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		require.NoError(t, err, authority.Subject.String())
		found++
	}
	require.NotZero(t, found)
}
