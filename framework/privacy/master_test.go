package privacy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/privacy"
)

func TestAnAddressOfAMasterKeyMayBeAnARN(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd"
	for _, address := range []string{"awskms://" + arn + "?region=eu-central-1", "awskms:///" + arn + "?region=eu-central-1"} {
		u, err := privacy.ParseAddress(address)
		require.NoError(t, err)
		require.Equal(t, []string{"awskms", "", "/" + arn, "region=eu-central-1"}, []string{u.Scheme, u.Host, u.Path, u.RawQuery})
	}
	u, err := privacy.ParseAddress("gcpkms://projects/shop")
	require.NoError(t, err)
	require.Equal(t, []string{"projects", "/shop"}, []string{u.Host, u.Path})
}
