int length(const char *text);
