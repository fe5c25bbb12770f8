package stompkit.spring;

import org.springframework.boot.autoconfigure.SpringBootApplication;

/** The application under test: one instance, with its own web server and its own relay. */
@SpringBootApplication
public class Application {}
