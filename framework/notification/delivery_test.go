package notification_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
)

func TestAReceiptHasAsMuchOfTheDestinationsTextAsAsked(t *testing.T) {
	t.Parallel()
	const id = "0198c2f1-7d2e-7c55-9d6f-0f4d1f2a3b4c"
	for whole, none := range map[notification.Receipt]notification.Receipt{
		"http 202 of ada": "http 202", "http 202": "http 202", "http 2020": "", "smtp 250 OK; <ada@shop.example> refused": "smtp 250",
		"kafka orders/3@1042": "kafka orders/3@1042", "kafka ada": "", "row of ada": "", "": "", "endpoint deleted": "endpoint deleted",
		notification.SupersededBy(id): notification.SupersededBy(id), notification.SupersededBy("ada"): "",
	} {
		require.Equal(t, none, whole.Cut(0), "%q", whole)
		require.Equal(t, none, whole.Proof(), "%q", whole)
		require.Equal(t, whole, whole.Cut(4096))
	}
	require.EqualValues(t, "http 202 of", notification.Receipt("http 202 of ada").Cut(4))
	require.EqualValues(t, "m", notification.Receipt("münchen").Cut(2), "no half character is left")
}
