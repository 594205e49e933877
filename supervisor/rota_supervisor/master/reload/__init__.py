"""Another configuration or other code: what differs, how it is rolled in or refused, and who hears of it."""
