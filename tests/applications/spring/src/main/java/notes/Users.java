package notes;

import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.core.userdetails.User;
import org.springframework.security.core.userdetails.UserDetailsService;
import org.springframework.security.core.userdetails.UsernameNotFoundException;
import org.springframework.security.crypto.bcrypt.BCryptPasswordEncoder;
import org.springframework.security.crypto.password.PasswordEncoder;
import org.springframework.security.web.SecurityFilterChain;

@Configuration
public class Users {
    @Bean
    SecurityFilterChain chain(HttpSecurity http) throws Exception {
        http.authorizeHttpRequests(all -> all.anyRequest().authenticated());
        http.formLogin(form -> form.loginPage("/login").permitAll().defaultSuccessUrl("/notes"));
        http.logout(Customizer.withDefaults());
        return http.build();
    }

    @Bean
    UserDetailsService details(People people) {
        return name ->
                people.findByName(name)
                        .map(one -> User.withUsername(name).password(one.password).build())
                        .orElseThrow(() -> new UsernameNotFoundException(name));
    }

    @Bean
    PasswordEncoder encoder() {
        return new BCryptPasswordEncoder();
    }
}
