"""A cluster's rings as every command sees them: read once (`snapshot`, `objects`), judged once (`causes`)."""
